"""Benchmarks that compare toolscout with other tool searches; not part of the wheel.

Run them from the root of the repository: `python -m benchmarks quality --help`.
"""
