"""One module for each agent SDK; none is imported before it is used."""
