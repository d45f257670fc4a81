"""The metrics of a job's finished epochs, and when they end it.

A network may train for any number of epochs, so neither its trainers nor its checkpoints hold all of them: the last
ones are kept, and of all of them what a stopping rule asks for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Literal

Direction = Literal["higher", "lower"]
"""Whether more or less of a metric is better."""
_DIRECTIONS: tuple[Direction, ...] = ("higher", "lower")

KEPT = 64
"""Epochs whose metrics are kept: more than a journal may lack when all ranks are lost."""

_Rule = tuple[str, Direction, float]
"""A metric, its direction, and how much better than the best an epoch must be to count."""


def is_better(direction: Direction, value: float, reference: float) -> bool:
    """Return whether `value` is better than `reference`; NaN is not, and nothing is better than NaN."""
    return value < reference if direction == "lower" else value > reference


class History:
    """The metrics of a job's finished epochs, of which the last KEPT are there; a run's journal has all.

    digest: of all epochs' metrics, in order.
    """

    def __init__(self, epochs: Iterable[Mapping[str, float]] = (), past: Mapping[str, Any] | None = None) -> None:
        """Take over epochs: all, or the last ones and `past`, both as `as_tree` gave them."""
        self._recent = [dict(metrics) for metrics in epochs]
        self._count, self.digest = 0, ""
        self._best: dict[_Rule, tuple[float, int, int]] = {}  # value, epoch, epochs since that have a value
        if past is None:
            for metrics in self._recent:
                self._count_in(metrics)
            return
        self._count, self.digest = int(past["epochs"]), str(past["digest"])
        for metric, direction, margin, value, epoch, since in past["best"]:
            rule = (str(metric), _DIRECTIONS[_DIRECTIONS.index(direction)], float(margin))
            self._best[rule] = float(value), int(epoch), int(since)
        if not len(self._recent) <= self._count < 2**63:
            raise ValueError(f"a history of {self._count} epochs cannot hold {len(self._recent)}")

    @classmethod
    def of(cls, epochs: History | Sequence[Mapping[str, float]]) -> History:
        """Return the history of all epochs of a job."""
        return epochs if isinstance(epochs, History) else cls(epochs)

    @property
    def dropped(self) -> int:
        """How many of the first epochs are not kept."""
        return self._count - len(self._recent)

    def append(self, metrics: Mapping[str, float]) -> None:
        """Add the metrics of the epoch after the last."""
        self._count_in(metrics)
        self._recent.append(dict(metrics))
        del self._recent[:-KEPT]

    def at(self, epoch: int) -> Mapping[str, float]:
        """Return the metrics of an epoch, counted from 1; none where it is not kept, or there is none."""
        return self._recent[epoch - 1 - self.dropped] if self.dropped < epoch <= self._count else {}

    def last(self, metric: str) -> float:
        """Return the last epoch's value, NaN where it has none. KeyError, naming the metrics there are."""
        self._check(metric)
        return self._recent[-1].get(metric, math.nan)

    def best(self, metric: str, better: Direction) -> tuple[float, int] | None:
        """Return the best value and its epoch, from 1, of equal ones the earliest; None if there is none. KeyError."""
        if not self._count:
            return None
        self._check(metric)
        value, epoch, _ = self._best[metric, better, 0.0]
        return (value, epoch) if epoch else None

    def without_improvement(self, metric: str, better: Direction, margin: float) -> int:
        """Return after how many of the last epochs, of those that have a value, `metric` was no new best. KeyError.

        margin: by how much an epoch must be better than the best before it. If that is new after epochs were dropped,
        these count as if their best had come first.
        """
        self._check(metric)
        rule = (metric, better, margin)
        if rule not in self._best:
            self._best[rule] = self._best[metric, better, 0.0] if self.dropped else (math.nan, 0, 0)
            for epoch, metrics in enumerate(() if self.dropped else self._recent, 1):
                self._improve(rule, metrics.get(metric, math.nan), epoch)
        return self._best[rule][2]

    def has(self, metric: str) -> bool:
        """Whether any epoch has a metric."""
        return (metric, "lower", 0.0) in self._best

    def as_tree(self) -> dict[str, Any]:
        """Return what a checkpoint holds: the epochs that are kept, and what is known of all if some were dropped."""
        kept = {"history": list(self._recent)}
        if not self.dropped:
            return kept
        best = [[*rule, *found] for rule, found in self._best.items()]
        return {**kept, "past": {"epochs": self._count, "digest": self.digest, "best": best}}

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Mapping[str, float]]:
        """Give the epochs that are kept."""
        return iter(self._recent)

    def __getitem__(self, index: int) -> dict[str, float]:
        place = index - self.dropped if index >= 0 else index
        if index >= 0 > place:
            raise IndexError(f"epoch {index + 1} is not among the last {len(self._recent)}, which are kept")
        return self._recent[place]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, History | Sequence):
            return NotImplemented
        theirs = History.of(other)
        return (len(self), self.digest) == (len(theirs), theirs.digest)

    __hash__ = None  # type: ignore[assignment]  # epochs are added

    def _count_in(self, metrics: Mapping[str, float]) -> None:
        text = self.digest + json.dumps(dict(metrics), sort_keys=True)
        self._count, self.digest = self._count + 1, blake2b(text.encode(), digest_size=16).hexdigest()
        for metric in metrics:
            if not self.has(metric):
                self._best |= {(metric, direction, 0.0): (math.nan, 0, 0) for direction in _DIRECTIONS}
        for rule in self._best:
            self._improve(rule, metrics.get(rule[0], math.nan), self._count)

    def _improve(self, rule: _Rule, value: float, epoch: int) -> None:
        """Let a rule see the value of the next epoch; NaN is none."""
        best, _, since = found = self._best[rule]
        _, direction, margin = rule
        if not math.isnan(value):
            wanted = best - margin if direction == "lower" else best + margin
            is_new = math.isnan(best) or is_better(direction, value, wanted)
            self._best[rule] = (value, epoch, 0) if is_new else (*found[:2], since + 1)

    def _check(self, metric: str) -> None:
        if not self.has(metric):
            known = sorted({rule[0] for rule in self._best})
            raise KeyError(f"no metric is called {metric!r}; this job has {', '.join(known)}")


OWN_METRICS: Mapping[str, Direction] = MappingProxyType(
    {"loss": "lower", "test_loss": "lower", "validation_loss": "lower", "accuracy": "higher"}
)
"""What every job may measure by itself; whoever brings another metric declares its direction."""


@dataclass(frozen=True)
class Stop:
    """The conditions under which a job ends; the first that holds counts.

    epochs: after so many epochs.
    target: once every metric named here is at least as good as its value.
    patience: after so many epochs in a row in which `monitor` was not better than its best by more than
    `minimum_improvement`; epochs in which it has no value do not count.
    better: metric -> whether more or less of it is better, of those that are watched and not of `OWN_METRICS`.
    """

    epochs: int
    target: Mapping[str, float] = field(default_factory=dict)
    patience: int | None = None
    minimum_improvement: float = 0.0
    monitor: str = "test_loss"
    better: Mapping[str, Direction] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ValueError(f"epochs is {self.epochs}, it must be at least 1")
        if self.patience is not None and self.patience < 1:
            raise ValueError(f"patience is {self.patience}, it must be at least 1; leave it out to train all epochs")
        if self.minimum_improvement < 0:
            raise ValueError(f"minimum_improvement is {self.minimum_improvement}, it must not be negative")
        for metric in (*self.target, *([] if self.patience is None else [self.monitor])):
            self.direction(metric)

    def direction(self, metric: str) -> Direction:
        """Return whether more or less of a metric is better. ValueError if nobody declares that."""
        found = self.better.get(metric) or OWN_METRICS.get(metric)
        if found is None:
            told = f"better={{{metric!r}: 'lower'}}, or 'higher'"
            raise ValueError(f"nobody declares whether more or less of {metric!r} is better; give {told}")
        return found


def converged(history: History | Sequence[Mapping[str, float]], stop: Stop) -> str | None:
    """Return why the job is done after the epochs in `history` ("target", "epochs", "patience"), or None.

    A metric without a value, which is NaN or not there, reaches nothing. KeyError, naming the metrics there are, if no
    epoch has one that `stop` asks for.
    """
    found = History.of(history)
    if not len(found):
        return None
    if stop.target and all(_reached(found, stop, name) for name in stop.target):
        return "target"
    if len(found) >= stop.epochs:
        return "epochs"
    if stop.patience is not None:
        direction = stop.direction(stop.monitor)
        if found.without_improvement(stop.monitor, direction, stop.minimum_improvement) >= stop.patience:
            return "patience"
    return None


def _reached(history: History, stop: Stop, name: str) -> bool:
    reached, wanted = history.last(name), stop.target[name]
    return reached == wanted or is_better(stop.direction(name), reached, wanted)
