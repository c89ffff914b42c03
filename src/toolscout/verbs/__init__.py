"""The three verbs that a model has: search, describe, call."""
