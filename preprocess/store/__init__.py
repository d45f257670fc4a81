"""Prepared samples that are kept: which ones, by what is known of their future."""
