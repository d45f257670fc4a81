"""Stopping rules under which any trial may train to its end: `none`, and median stopping."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from statistics import median

from fleet.search.decisions import Segment, Verdict
from fleet.search.stopping_rule import SpeculativeRule


class ToTheEnd(SpeculativeRule):
    """Under this any trial may train all epochs, and of none that has begun it is sure that it goes on.

    Args:
        epochs: how many a trial trains at most.
        first: how many it trains before it is looked at.
    """

    def __init__(self, epochs: int, first: int) -> None:
        self._epochs, self._first = epochs, first

    def first(self, trial: int) -> Segment:
        """Begin with as many epochs as any trial does."""
        return Segment(trial, 0, self._first)

    def after(self, segment: Segment) -> int:
        """Count all epochs that are left, which are those in the mean, too, as nobody knows."""
        return self._epochs - segment.end

    def mean_after_new(self, new: range) -> float:
        """Count all that follow on the first segments, as nobody knows."""
        return len(new) * (self._epochs - self._first)


class Whole(ToTheEnd):
    """Each trial trains to its end.

    Args:
        epochs: how many each trial trains.
    """

    def __init__(self, epochs: int) -> None:
        super().__init__(epochs, epochs)

    def report(self, trial: int, epoch: int, loss: float | None) -> Verdict:
        """The trial is done."""
        return "fail" if loss is None else "done"

    def next(self, fresh: int | None, trials: int | None = None) -> Segment | None:
        """The new trial."""
        return None if fresh is None else self.first(fresh)


class Median(ToTheEnd):
    """A trial stops after an epoch where its best loss is worse than the median of the others' mean losses until then.

    Args:
        epochs: the most that a trial trains.
        grace: no trial stops before so many epochs.
        least: no trial stops where fewer others are known at its epoch.
    """

    def __init__(self, epochs: int, grace: int = 1, least: int = 5) -> None:
        super().__init__(epochs, min(grace, epochs))
        self._least = least
        self._losses: dict[int, list[float]] = {}
        self._means: dict[int, list[float]] = {}  # epoch -> means of trials' losses until then, ascending
        self._ready: list[Segment] = []
        self._heard: dict[int, int] = {}  # trial -> epochs that have arrived
        self._ended: set[int] = set()

    def report(self, trial: int, epoch: int, loss: float | None) -> Verdict | None:
        """Let the trial train one epoch more, unless it is worse than the others."""
        verdict = self._verdict(trial, epoch, loss)
        if verdict is None:
            self._ready.append(Segment(trial, epoch, epoch + 1))
        else:
            self._ended.add(trial)
            self._heard.pop(trial, None)
        return verdict

    def _verdict(self, trial: int, epoch: int, loss: float | None) -> Verdict | None:
        if loss is None:
            return "fail"
        losses = self._losses.setdefault(trial, [])
        losses.append(loss)
        means = self._means.setdefault(epoch, [])
        worse = len(means) >= self._least and min(losses) > median(means)
        insort(means, sum(losses) / len(losses))
        if epoch == self._epochs:
            return "done"
        return "stop" if worse else None

    def next(self, fresh: int | None, trials: int | None = None) -> Segment | None:
        """A trial that goes on, otherwise the new one."""
        return self._ready.pop(0) if self._ready else None if fresh is None else self.first(fresh)

    def arrived(self, trial: int, epoch: int, loss: float | None) -> None:
        """Note how far the trial has come."""
        if trial not in self._ended:
            self._heard[trial] = -1 if loss is None else max(epoch, self._heard.get(trial, 0))

    def likely(self, trials: int | None = None) -> Iterator[Segment]:
        """The next epoch of each trial that has not ended, those first that have trained most."""
        going = [(-epoch, trial) for trial, epoch in self._heard.items() if self._first <= epoch < self._epochs]
        return (Segment(trial, -epoch, 1 - epoch) for epoch, trial in sorted(going))
