"""The values of a search's metrics after an epoch of a trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol

from fleet.journal.events import Epoch, Event

Metrics = Mapping[str, float]


class Values(Protocol):
    """Knows what the trials' epochs came to."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Their names; the first decides."""
        ...

    def of(self, job: str, trial: int, epoch: int) -> tuple[float, ...] | None:
        """The values of a trial's job after so many epochs; None: one is missing, or not finite."""
        ...


class JournalValues:
    """Knows the values that the journal's epochs tell, or where the journal had no time to, the checkpoints.

    Args:
        metrics: their names.
        saved: (job, epoch) -> the metrics of that epoch, by the job's newest checkpoint; empty where it has none.
    """

    def __init__(self, metrics: tuple[str, ...], saved: Callable[[str, int], Metrics]) -> None:
        self.metrics, self._saved = metrics, saved
        self._known: dict[tuple[str, int], Metrics] = {}

    def event(self, event: Event) -> None:
        """Take one event of the journal."""
        if isinstance(event, Epoch):
            self._known[event.job, event.epoch] = event.metrics

    def of(self, job: str, trial: int, epoch: int) -> tuple[float, ...] | None:
        """The values; see `Values`."""
        known = self._known.get((job, epoch)) or self._saved(job, epoch)
        values = tuple(float(known.get(metric, math.nan)) for metric in self.metrics)
        return values if all(map(math.isfinite, values)) else None
