"""Looks, during a wait, whether something else has happened: often, and yet in a small part of the time."""

from __future__ import annotations

import time
from collections.abc import Callable

LEAST_BETWEEN = 0.0005
"""Seconds between two looks."""
_PART = 0.05
"""Of a wait that looks may take."""
_SLOWER = 2.0
"""By so much, at most, does a look count as longer than the one before: most that take long were not given a core."""


class Looks:
    """Paces looks that may take long. clock: seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._takes = LEAST_BETWEEN * _PART
        self._due = 0.0

    def begin(self) -> None:
        """A wait begins: most end before the first look."""
        self._due = self._clock() + LEAST_BETWEEN

    def if_due(self, look: Callable[[], None]) -> None:
        """Look, unless that was done a moment ago; what it raises ends the wait."""
        begin = self._clock()
        if begin <= self._due:
            return
        look()
        end = self._clock()
        self._takes = min(end - begin, _SLOWER * self._takes)
        self._due = end + max(LEAST_BETWEEN, self._takes / _PART)
