"""Devices that are set aside over time, for deadlines and guarantees."""
