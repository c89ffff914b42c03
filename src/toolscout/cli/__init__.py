"""The `toolscout` command."""
