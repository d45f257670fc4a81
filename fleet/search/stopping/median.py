"""Median stopping (Golovin et al., Google Vizier, KDD'17, 3.2.2)."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence

from fleet.search.segment import Segment, Verdict
from fleet.search.stopping.to_the_end import ToTheEnd


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
        worse = len(means) >= self._least and min(losses) > _median(means)
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


def _median(ascending: Sequence[float]) -> float:
    """The median, the mean of two in the middle."""
    half = len(ascending) // 2
    return ascending[half] if len(ascending) % 2 else (ascending[half - 1] + ascending[half]) / 2
