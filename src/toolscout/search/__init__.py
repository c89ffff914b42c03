"""Finding: words, vectors, and one ranking out of both."""
