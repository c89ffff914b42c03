"""Training of toolscout's encoders, step by step; `python -m training --help` lists the steps."""
