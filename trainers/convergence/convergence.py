"""When a job is done."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Stop:
    """The conditions under which a job ends; the first that holds counts.

    epochs: after so many epochs.
    target: once every metric named here is at least as good as its value.
    patience: after so many epochs in a row in which `monitor` was not better than its best by more than
    `minimum_improvement`.
    """

    epochs: int
    target: Mapping[str, float] = field(default_factory=dict)
    patience: int | None = None
    minimum_improvement: float = 0.0
    monitor: str = "test_loss"

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ValueError(f"epochs is {self.epochs}, it must be at least 1")
        if self.patience is not None and self.patience < 1:
            raise ValueError(f"patience is {self.patience}, it must be at least 1; leave it out to train all epochs")
        if self.minimum_improvement < 0:
            raise ValueError(f"minimum_improvement is {self.minimum_improvement}, it must not be negative")


_LOWER_IS_BETTER = frozenset({"loss", "error", "errors", "mse", "rmse", "mae", "nll", "perplexity"})


def lower_is_better(metric: str) -> bool:
    """Return whether less of a metric is better, by the words of its name: loss, error, mse and their like."""
    return not _LOWER_IS_BETTER.isdisjoint(re.split(r"[^a-z]+", metric.lower()))


def is_better(metric: str, value: float, reference: float) -> bool:
    """Return whether `value` is better than `reference`."""
    return value < reference if lower_is_better(metric) else value > reference


def converged(history: Sequence[Mapping[str, float]], stop: Stop) -> str | None:
    """Return why the job is done after the epochs in `history` ("target", "epochs", "patience"), or None.

    KeyError, naming the metrics there are, if the history lacks one that `stop` asks for.
    """
    if not history:
        return None
    if stop.target and all(_reached(history[-1], name, value) for name, value in stop.target.items()):
        return "target"
    if len(history) >= stop.epochs:
        return "epochs"
    if stop.patience is not None and _epochs_without_improvement(history, stop) >= stop.patience:
        return "patience"
    return None


def metric_of(metrics: Mapping[str, float], name: str) -> float:
    """Return a metric of an epoch. KeyError, naming the metrics there are, if it has no such one."""
    if name not in metrics:
        raise KeyError(f"no metric is called {name!r}; this job has {', '.join(sorted(metrics))}")
    return metrics[name]


def _reached(metrics: Mapping[str, float], name: str, value: float) -> bool:
    reached = metric_of(metrics, name)
    return reached == value or is_better(name, reached, value)


def _epochs_without_improvement(history: Sequence[Mapping[str, float]], stop: Stop) -> int:
    margin = -stop.minimum_improvement if lower_is_better(stop.monitor) else stop.minimum_improvement
    best, best_epoch = metric_of(history[0], stop.monitor), 0
    for epoch, metrics in enumerate(history):
        value = metric_of(metrics, stop.monitor)
        if is_better(stop.monitor, value, best + margin) or best != best:  # NaN is the only value unlike itself
            best, best_epoch = value, epoch
    return len(history) - 1 - best_epoch
