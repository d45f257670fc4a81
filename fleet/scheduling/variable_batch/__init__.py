"""Batches that a policy chooses (Saxena et al., 2020; Pollux, OSDI'21)."""
