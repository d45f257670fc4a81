"""A round as the books have it."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

_MOST_ROUNDS = 32
"""So many are looked at to find out what a policy wanted last."""


@dataclass
class Round:
    """The time between two allocations.

    Attributes:
        allocation: of those that train in it; with `others_go_on`, of those that start alone.
        others_go_on: whoever trains besides goes on where it is.
    """

    index: int
    allocation: Mapping[str, tuple[int, ...]]
    others_go_on: bool
    start: float
    end: float | None = None

    def to_json(self, now: float) -> dict[str, Any]:
        """Return the round as run.json holds it; one that has not ended ends now."""
        allocation = {job: list(devices) for job, devices in self.allocation.items()}
        others = {"others_go_on": True} if self.others_go_on else {}
        return {"allocation": allocation, **others, "start": self.start, "end": now if self.end is None else self.end}


@dataclass
class FormedRounds:
    """The whole allocations of the last rounds, to tell what a policy wanted last."""

    _last: deque[Mapping[str, tuple[int, ...]]] = field(default_factory=lambda: deque(maxlen=_MOST_ROUNDS + 1))

    def planned(self, allocation: Mapping[str, tuple[int, ...]]) -> None:
        """A round begins, in which these train."""
        self._last.append(allocation)

    def wanted(self, ahead: Container[str]) -> dict[str, tuple[int, ...]]:
        """The allocation of the last round that began as the policy wanted it, not only to train something ahead of
        need. Of very many rounds in a row that began so the first that is looked at stands for it.

        Args:
            ahead: jobs that train ahead; the allocation is told without them.
        """
        first = max(0, len(self._last) - _MOST_ROUNDS)
        for number in range(len(self._last) - 1, first - 1, -1):
            found = {job: devices for job, devices in self._last[number].items() if job not in ahead}
            before = self._last[number - 1] if number else {}
            if number == first or any(before.get(job) != devices for job, devices in found.items()):
                return found
        return {}
