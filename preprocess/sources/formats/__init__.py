"""Formats that take a library of their own, or that few have: imported when one is opened."""
