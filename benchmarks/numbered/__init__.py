"""Bars of what a number means, one module a subject."""
