"""Samplers, which suggest the values of trials."""
