"""Benchmarks: `python -m benchmarks NAME [--json]`. Ratios inside one interleaved run, medians and spread."""
