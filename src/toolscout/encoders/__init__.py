"""Encoders turn texts into vectors: the built-in table, ONNX, an endpoint or your own."""
