"""Searches of drawn trials on devices that are played."""
