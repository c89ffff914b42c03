"""Measure toolscout on a catalogue of your own: how well it finds, and what it costs in tokens."""
