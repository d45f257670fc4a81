"""A round as the books have it."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

_MOST_ROUNDS = 32
"""So many are looked at to find out what a policy wanted last."""


@dataclass
class Round:
    """The time between two allocations."""

    index: int
    allocation: dict[str, tuple[int, ...]]
    start: float
    end: float | None = None

    def to_json(self, now: float) -> dict[str, Any]:
        """Return the round as run.json holds it; one that has not ended ends now."""
        allocation = {job: list(devices) for job, devices in self.allocation.items()}
        return {"allocation": allocation, "start": self.start, "end": now if self.end is None else self.end}


def last_formed(rounds: Sequence[Round], ahead: Container[str]) -> dict[str, tuple[int, ...]]:
    """The allocation of the last round that began as the policy wanted it, not only to train something ahead of need.

    Of very many rounds in a row that began so the first that is looked at stands for it.

    Args:
        rounds: all, in their order.
        ahead: jobs that train ahead; the allocation is told without them.
    """
    first = max(0, len(rounds) - _MOST_ROUNDS)
    for number in range(len(rounds) - 1, first - 1, -1):
        found = {job: devices for job, devices in rounds[number].allocation.items() if job not in ahead}
        before = rounds[number - 1].allocation if number else {}
        if number == first or any(before.get(job) != devices for job, devices in found.items()):
            return found
    return {}
