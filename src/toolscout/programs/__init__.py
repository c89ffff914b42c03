"""Programs: code that a model writes, run in processes of their own."""
