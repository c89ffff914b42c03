"""One gateway in the background for all clients of a configuration that start `serve --daemon`."""
