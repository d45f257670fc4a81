"""The nursery, for tests of it."""

from tests.warm.starting import nursery, started_cold

__all__ = ["nursery", "started_cold"]
