"""Responses and Chat Completions: rounds with the model that the host does not see."""
