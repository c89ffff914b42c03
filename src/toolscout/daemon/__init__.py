"""One gateway in the background for all clients of a configuration over stdio."""
