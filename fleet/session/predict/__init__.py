"""Trained networks of a run predict the same samples, and how good they are is told."""
