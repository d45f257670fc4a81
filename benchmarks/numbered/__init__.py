"""Bars of `python -m benchmarks numbers`, a chapter a subject."""
