"""Some tests start processes, and look at how they end."""

from tests.warm.starting import started_cold

__all__ = ["started_cold"]
