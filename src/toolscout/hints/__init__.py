"""Hints: the words that people use for tools and that definitions do not have."""
