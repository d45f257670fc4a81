"""The value of a search's metric after an epoch of a trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from fleet.run_directory.journal import JournalLine

Metrics = Mapping[str, float]


class Values(Protocol):
    """Knows what the trials' epochs came to."""

    @property
    def metric(self) -> str:
        """Its name."""
        ...

    def of(self, job: str, trial: int, epoch: int) -> float | None:
        """The value of a trial's job after so many epochs; None: it has none, or none that is finite."""
        ...


class JournalValues:
    """Those that the journal's epochs tell, or where the journal had no time to, the checkpoints.

    Args:
        metric: its name.
        saved: (job, epoch) -> the metrics of that epoch, by the job's newest checkpoint; empty where it has none.
    """

    def __init__(self, metric: str, saved: Callable[[str, int], Metrics]) -> None:
        self.metric, self._saved = metric, saved
        self._known: dict[tuple[str, int], Metrics] = {}

    def event(self, line: JournalLine | dict[str, Any]) -> None:
        """Take one event of the journal."""
        if line.get("event") == "epoch":
            self._known[line["job"], line["epoch"]] = line["metrics"]

    def of(self, job: str, trial: int, epoch: int) -> float | None:
        """The value; see `Values`."""
        metrics = self._known.get((job, epoch)) or self._saved(job, epoch)
        value = metrics.get(self.metric, math.nan)
        return float(value) if math.isfinite(value) else None
