"""Successive halving without barriers (ASHA; Li et al., 2020: Massively Parallel Hyperparameter Tuning)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleet.search.segment import Segment, Verdict
from fleet.search.stopping.ranking import Ranking


class Halving:
    """A trial goes on from a rung once it is among the best 1/eta of those that are known there.

    A trial pauses at each rung. A free slot takes the highest promotion there is, otherwise a new trial (Algorithm 2).

    Args:
        rungs: epochs, ascending; the last is the most that a trial trains.
        eta: of how many trials one goes on, 2 or more.
    """

    def __init__(self, rungs: Sequence[int], eta: int) -> None:
        self._rungs, self._eta = tuple(rungs), eta
        self._level = {epoch: level for level, epoch in enumerate(self._rungs)}
        self._known = [Ranking() for _ in self._rungs]
        self._heard = [Ranking() for _ in self._rungs]

    def first(self, trial: int) -> Segment:
        """The way to the first rung."""
        return Segment(trial, 0, self._rungs[0])

    def report(self, trial: int, epoch: int, loss: float | None) -> Verdict:
        """Rank the trial at its rung."""
        self._known[self._level[epoch]].add(trial, loss)
        if loss is None:
            return "fail"
        return "done" if epoch == self._rungs[-1] else "pause"

    def next(self, fresh: int | None) -> Segment | None:
        """The highest promotion, otherwise the new trial."""
        return self.promotion() or (None if fresh is None else self.first(fresh))

    def promotion(self) -> Segment | None:
        """The best trial that may go on from the highest rung that has one."""
        for level in reversed(range(len(self._rungs) - 1)):
            ranking = self._known[level]
            for trial in ranking.best_left(len(ranking) // self._eta):
                ranking.take(trial)
                return self._onward(trial, level)
        return None

    def highest(self) -> int | None:
        """The epochs of the rung from which `promotion` would be; None: there is none."""
        for level in reversed(range(len(self._rungs) - 1)):
            ranking = self._known[level]
            if any(True for _ in ranking.best_left(len(ranking) // self._eta)):
                return self._rungs[level]
        return None

    def arrived(self, trial: int, epoch: int, loss: float | None) -> None:
        """Rank the trial among those that have arrived."""
        level = self._level.get(epoch)
        if level is None:
            return
        self._heard[level].add(trial, loss)
        if level:
            self._heard[level - 1].take(trial)

    def likely(self, trials: int | None = None) -> Iterator[Segment]:
        """Trials among the best 1/eta that have arrived at a rung, one at least, from the highest rung down.

        Where so few trials will come to a rung that hardly any goes on from it, none is likely to.
        """
        for level in reversed(range(len(self._rungs) - 1)):
            ranking = self._heard[level]
            quota = max(1, len(ranking) // self._eta)
            quota = quota if trials is None else min(quota, trials // self._eta ** (level + 1))
            for trial in ranking.best_left(quota):
                yield self._onward(trial, level)

    def _onward(self, trial: int, level: int) -> Segment:
        return Segment(trial, self._rungs[level], self._rungs[level + 1])
