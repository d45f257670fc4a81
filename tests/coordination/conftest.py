"""Commands and runs start from a nursery."""

from tests.warm.starting import nursery, started_cold

__all__ = ["nursery", "started_cold"]
