"""A run of an ensemble, as rank 0 leads it from its spec to its report."""
