"""Training scripts, as people write them, become specs that run."""
