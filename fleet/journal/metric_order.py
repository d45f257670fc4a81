"""By which metric a run's networks are compared, and how: one order for all who list, choose or show them.

The journal says it: its lines `job` have the directions of each network's metrics, its line `session` has the metric by
which all are compared, and its lines `bounds` have that of the search. Nothing is guessed from names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from fleet.journal import events

_T = TypeVar("_T")
HIGHER, LOWER = DIRECTIONS = ("higher", "lower")
_ALWAYS: Mapping[str, str] = MappingProxyType(
    {"accuracy": HIGHER, "top5": HIGHER, "mean_absolute_error": LOWER}
    | dict.fromkeys(("loss", "test_loss", "validation_loss"), LOWER)
)
"""Directions of metrics in journals that were written before they told any."""
_USUAL = ("accuracy", "test_loss", "loss")


class Undeclared(ValueError):
    """Nobody declares whether more or less of a metric is better."""

    def __init__(self, metric: str) -> None:
        super().__init__(f"nobody declares whether more or less of {metric!r} is better; say --better higher or lower")


@dataclass(frozen=True)
class MetricOrder:
    """The order of networks by one metric.

    Attributes:
        metric: its name.
        higher: whether more of it is better.
        last: a network counts by its last value, as a search compares its trials; else by its best one.
    """

    metric: str
    higher: bool
    last: bool = False

    def value(self, values: Sequence[float | None]) -> tuple[float, int] | None:
        """Return the value that a network counts by, of those after each epoch, and its index; None: it has none.

        Of equal values the earliest.
        """
        known = [(value, index) for index, value in enumerate(values) if value is not None and not math.isnan(value)]
        if not known:
            return None
        return known[-1] if self.last else min(known, key=lambda pair: (self.key(pair[0]), pair[1]))

    def key(self, value: float) -> float:
        """Return what sorts values, the best first."""
        return -value if self.higher else value

    def ranked(self, networks: Iterable[_T], value: Callable[[_T], float | None]) -> list[_T]:
        """Return the networks that have a value, the best first, equal ones as they come."""
        known = [(network, found) for network in networks if (found := value(network)) is not None]
        return [network for network, _ in sorted(known, key=lambda pair: self.key(pair[1]))]


@dataclass
class Comparing(events.Observer):
    """What a journal says of how its networks are compared; it takes its events.

    Attributes:
        better: network -> metric -> `higher` or `lower`.
        by: the metric by which all are compared, and its direction; None: it does not say.
        searched: that of the search; None: there is none.
    """

    better: dict[str, Mapping[str, str]] = field(default_factory=dict)
    by: tuple[str, str] | None = None
    searched: tuple[str, str] | None = None

    @classmethod
    def of(cls, told: Iterable[events.Event]) -> Comparing:
        """Return what events say."""
        found = cls()
        for event in told:
            found.take(event)
        return found

    def on_job(self, event: events.Job) -> None:
        if event.better is not None:
            self.better[event.job] = event.better

    def on_session(self, event: events.Session) -> None:
        self.by = event.compared_by

    def on_bounds(self, event: events.Bounds) -> None:
        if event.metric:
            self.searched = (event.metric, HIGHER if event.mode == "max" else LOWER)

    def of_network(self, name: str) -> dict[str, str]:
        """Metric -> its direction, of one network."""
        return {**_ALWAYS, **self.better.get(name, {})}

    def metric(self, measured: Iterable[str]) -> str:
        """Return by which of these metrics networks are compared where nobody names one; "": there are none.

        That of the search, else that by which the run compares them, else accuracy, the held-out loss, the loss.
        """
        names = list(measured)
        said = [each[0] for each in (self.searched, self.by) if each is not None]
        return next((name for name in (*said, *_USUAL) if name in names), "")

    def order(self, metric: str, better: str | None = None) -> MetricOrder:
        """Return the order by a metric. Undeclared if nobody declares its direction.

        Args:
            metric: its name.
            better: what a person says of it, `higher` or `lower`.
        """
        last = self.searched is not None and metric == self.searched[0]
        told = {known[metric] for known in self.better.values() if metric in known}
        said = dict(each for each in (self.by, self.searched) if each is not None)
        found = better or said.get(metric) or (told.pop() if len(told) == 1 else _ALWAYS.get(metric))
        if found not in DIRECTIONS:
            raise Undeclared(metric)
        return MetricOrder(metric, found == HIGHER, last)
