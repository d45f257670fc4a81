"""Successive halving with barriers (Jamieson and Talwalkar, Non-stochastic Best Arm Identification, AISTATS'16)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleet.search.segment import Segment, Verdict
from fleet.search.stopping.ranking import Ranking


class SynchronousHalving:
    """All trials come to a rung before the best 1/eta of them, one at least, go on from it.

    Trials that are added after the first rung was left make a bracket of their own, once the one before is done.

    Args:
        rungs: epochs, ascending; the last is the most that a trial trains.
        eta: of how many trials one goes on, 2 or more.
    """

    def __init__(self, rungs: Sequence[int], eta: int) -> None:
        self._rungs, self._eta = tuple(rungs), eta
        self._open(0)
        self._heard: dict[int, Ranking] = {}

    def _open(self, level: int) -> None:
        """Begin with a rung."""
        self._level, self._awaited, self._ranking = level, 0, Ranking()
        self._queue: list[Segment] = []

    def first(self, trial: int) -> Segment:
        """The way to the first rung."""
        return Segment(trial, 0, self._rungs[0])

    def report(self, trial: int, epoch: int, loss: float | None) -> Verdict:
        """Rank the trial at its rung."""
        self._awaited -= 1
        self._ranking.add(trial, loss)
        if loss is None:
            return "fail"
        return "done" if epoch == self._rungs[-1] else "pause"

    def next(self, fresh: int | None) -> Segment | None:
        """A trial that goes on; or a new one, if nobody has gone on from the first rung."""
        if self._level == 0 and fresh is not None:
            self._awaited += 1
            return self.first(fresh)
        while not self._queue:
            if self._awaited or not len(self._ranking):
                return None
            self._leave_rung()
            if self._level == 0 and fresh is not None:
                return self.next(fresh)
        return self._queue.pop(0)

    def _leave_rung(self) -> None:
        """Let the best of a rung that all have reached go on, or end the bracket."""
        level = self._level
        best = list(self._ranking.best_left(max(1, len(self._ranking) // self._eta)))
        if level == len(self._rungs) - 1 or not best:
            self._open(0)
            self._heard = {}
            return
        self._open(level + 1)
        self._queue = [self._onward(trial, level) for trial in best]
        self._awaited = len(best)

    def arrived(self, trial: int, epoch: int, loss: float | None) -> None:
        """Rank the trial among those that have arrived."""
        if epoch in self._rungs:
            level = self._rungs.index(epoch)
            self._heard.setdefault(level, Ranking()).add(trial, loss)
            self._heard.setdefault(level - 1, Ranking()).take(trial)

    def likely(self, trials: int | None = None) -> Iterator[Segment]:
        """Trials among the best 1/eta that have arrived at a rung, from the highest rung down."""
        for level in sorted(self._heard, reverse=True):
            if 0 <= level < len(self._rungs) - 1:
                ranking = self._heard[level]
                for trial in ranking.best_left(max(1, len(ranking) // self._eta)):
                    yield self._onward(trial, level)

    def _onward(self, trial: int, level: int) -> Segment:
        return Segment(trial, self._rungs[level], self._rungs[level + 1])
