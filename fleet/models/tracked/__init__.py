"""A run as trackers of experiments see it: one of their runs for each network, one for all together."""
