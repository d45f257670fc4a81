"""The results at one rung, best first."""

from __future__ import annotations

import math
import sys
from bisect import bisect_left, insort
from collections.abc import Iterator


class Ranking:
    """Trials by their loss at one epoch, and which of them have not gone on. Of equal ones the earlier trial is better.

    A trial that failed counts, comes last and never goes on.
    """

    def __init__(self) -> None:
        self._all: list[tuple[float, int]] = []
        self._left: list[tuple[float, int]] = []
        self._losses: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, trial: int, loss: float | None) -> None:
        """Put a trial in, once."""
        entry = (math.inf if loss is None else loss, trial)
        insort(self._all, entry)
        self._losses[trial] = entry[0]
        if loss is not None:
            insort(self._left, entry)

    def take(self, trial: int) -> None:
        """Let a trial go on, if it is there."""
        entry = (self._losses.get(trial, math.inf), trial)
        place = bisect_left(self._left, entry)
        if self._left[place : place + 1] == [entry]:
            del self._left[place]

    def has(self, trial: int) -> bool:
        """Whether a trial is there."""
        return trial in self._losses

    def rank(self, trial: int, loss: float | None = None) -> int:
        """How many are better than a trial, here with its loss, or one of a loss that is not; no end if it failed."""
        value = self._losses[trial] if loss is None else loss
        return bisect_left(self._all, (value, trial)) if value < math.inf else sys.maxsize

    def count_left(self, quota: int) -> int:
        """How many of the best `quota` have not gone on."""
        return bisect_left(self._left, self._all[quota]) if quota < len(self._all) else len(self._left)

    def not_failed(self) -> Iterator[int]:
        """The trials that have not failed, best first, whether they have gone on or not."""
        return (trial for loss, trial in self._all if loss < math.inf)

    def best_left(self, quota: int) -> Iterator[int]:
        """The trials among the best `quota` that have not gone on, best first."""
        for entry in self._left:
            if bisect_left(self._all, entry) >= quota:
                return
            yield entry[1]
