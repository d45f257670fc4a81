"""A round of a run: the time between two allocations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class Round:
    """The time between two allocations."""

    index: int
    allocation: dict[str, tuple[int, ...]]
    start: float
    end: float | None = None

    def to_json(self, now: float) -> dict[str, Any]:
        """As it stands in run.json; one that has not ended ends now."""
        allocation = {job: list(devices) for job, devices in self.allocation.items()}
        return {"allocation": allocation, "start": self.start, "end": now if self.end is None else self.end}
