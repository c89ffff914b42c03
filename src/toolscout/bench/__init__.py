"""Measure tool searches: datasets, metrics, systems, speed, and the fitting of our own."""
