"""A session in its stages: ready, opened, rated, running."""
