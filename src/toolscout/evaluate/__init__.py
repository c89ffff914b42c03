"""Measure how well toolscout finds the tools of a catalogue of your own."""
