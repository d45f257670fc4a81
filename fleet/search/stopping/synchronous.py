"""Successive halving with barriers (Jamieson and Talwalkar, Non-stochastic Best Arm Identification, AISTATS'16)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from fleet.search.segment import Segment, Verdict
from fleet.search.stopping.chances import Probable
from fleet.search.stopping.halving import mean_after
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
        self._begun = 0  # trials
        self._heard: list[tuple[int, int, float | None]] = []  # of trials of the bracket that comes next
        self._begin_bracket()

    def _begin_bracket(self) -> None:
        """Begin with trials that are new."""
        self._first, self._arrived = self._begun, [Ranking() for _ in self._rungs]
        self._probable = Probable(self._arrived, self._eta)
        self._open(0)
        heard, self._heard = self._heard, []
        for each in heard:
            self.arrived(*each)

    def _open(self, level: int) -> None:
        """Begin with a rung."""
        self._level, self._awaited, self._ranking = level, 0, Ranking()
        self._queue: list[Segment] = []
        self._coming: frozenset[int] = frozenset()  # trials that come to it, once the rung before is left
        self._came = 0  # of these

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

    def next(self, fresh: int | None, trials: int | None = None) -> Segment | None:
        """A trial that goes on; or a new one, if nobody has gone on from the first rung."""
        if self._level == 0 and fresh is not None:
            self._awaited += 1
            self._begun = fresh + 1
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
        best = list(self._ranking.best_left(self._quota(len(self._ranking))))
        if level == len(self._rungs) - 1 or not best:
            self._begin_bracket()
            return
        self._open(level + 1)
        self._queue = [self._onward(trial, level) for trial in best]
        self._awaited, self._coming = len(best), frozenset(best)
        self._came = sum(map(self._arrived[level + 1].has, best))

    def arrived(self, trial: int, epoch: int, loss: float | None) -> None:
        """Rank the trial among those of its bracket that have arrived."""
        if epoch not in self._rungs:
            return
        if self._level and trial >= self._begun:
            self._heard.append((trial, epoch, loss))
            return
        level = self._rungs.index(epoch)
        self._arrived[level].add(trial, loss)
        self._came += level == self._level and trial in self._coming
        if level:
            self._arrived[level - 1].take(trial)

    def likely(self, trials: int | None = None) -> Iterator[Segment]:
        """Trials among the best 1/eta that have arrived at a rung, from the highest rung down."""
        for level in reversed(range(len(self._rungs) - 1)):
            ranking = self._arrived[level]
            for trial in ranking.best_left(self._quota(len(ranking))):
                yield self._onward(trial, level)

    def probable(self, trials: int) -> Iterator[Segment]:
        """Those of the bracket (`fleet.search.stopping.chances.Probable`)."""
        return (self._onward(*each) for each in self._probable.onward(trials - self._first))

    def is_promising(self, segment: Segment, trials: int) -> bool:
        """Whether its trial is, at the rung where it begins; none of a bracket that is to come."""
        return self._probable.is_promising(segment.trial, self._rungs.index(segment.start), trials - self._first)

    def sure(self, trials: int) -> Iterator[Segment]:
        """Trials that are among the best of a rung even if all that are missing there are better, from the lowest up:
        the others wait for these.
        """
        yield from self._queue
        level, coming = self._level, self._coming
        size, came = (len(coming), self._came) if level else (trials - self._first, len(self._arrived[0]))
        while level < len(self._rungs) - 1:
            ranking, quota = self._arrived[level], self._quota(size)
            for trial in ranking.best_left(quota - (size - came)):
                if not level or trial in coming:
                    yield self._onward(trial, level)
            if came < size:
                return
            best = (trial for trial in ranking.not_failed() if not level or trial in coming)
            coming, level = frozenset(islice(best, quota)), level + 1
            size, came = len(coming), sum(map(self._arrived[level].has, coming))

    def hopeless(self, trials: int) -> Iterator[int]:
        """Nobody, until all of a rung are there and some of them stop."""
        return iter(())

    def after(self, segment: Segment) -> int:
        """All up to the last rung."""
        return self._rungs[-1] - segment.end

    def mean_after(self, segment: Segment) -> float:
        """One trial of eta goes on from each rung."""
        return mean_after(self._rungs[self._rungs.index(segment.end) :], self._eta)

    def mean_after_new(self, new: range) -> float:
        """As often as on that of one."""
        return len(new) * mean_after(self._rungs, self._eta)

    def _quota(self, size: int) -> int:
        """How many of a rung go on."""
        return max(1, size // self._eta)

    def _onward(self, trial: int, level: int) -> Segment:
        return Segment(trial, self._rungs[level], self._rungs[level + 1])
