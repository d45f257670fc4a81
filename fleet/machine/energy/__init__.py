"""Counters of energy: which a host has, and what they say."""
