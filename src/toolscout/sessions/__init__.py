"""One conversation: what it has loaded, what the model reads, and the verbs it can use."""
