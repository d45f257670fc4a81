"""When a job is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from trainers.convergence.history import Direction, History, is_better

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
