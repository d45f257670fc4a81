"""Coming events: a heap of them with deterministic ties."""

from __future__ import annotations

import heapq
import math
from enum import IntEnum


class Kind(IntEnum):
    """What happens; of events at the same instant the smaller goes first."""

    DONE = 0
    REPAIR = 1
    FAILURE = 2
    STAGE = 3
    PREPARED = 4


class Calendar:
    """Events by time, then kind, then the order in which they were entered."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, Kind, int, int, int]] = []
        self._entered = 0

    def enter(self, time: float, kind: Kind, what: int, version: int = 0) -> None:
        """Let `kind` happen to `what` at `time`; the version tells whether it is still meant then."""
        self._entered += 1
        heapq.heappush(self._heap, (time, kind, self._entered, what, version))

    @property
    def next(self) -> float:
        """The time of the first event, seconds; infinite if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def take(self) -> tuple[Kind, int, int]:
        """Take the first event: its kind, to what it happens, and the version."""
        _, kind, _, what, version = heapq.heappop(self._heap)
        return kind, what, version
