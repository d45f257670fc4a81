"""The jobs that are still to come in a simulation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Protocol

from fleet.simulator.traces.columns import JobColumns
from fleet.simulator.traces.job import TraceJob


class ComingJobs(Protocol):
    """Jobs by arrival, each known by its row, from 0 on."""

    @property
    def most(self) -> int:
        """No more jobs will come in all."""
        ...

    @property
    def next(self) -> float:
        """When the next one comes, seconds; infinite: none does, as far as is known."""
        ...

    def take(self) -> TraceJob:
        """The next one; its row is how many came before."""
        ...

    def ended(self, row: int, now: float) -> None:
        """A job is done; others may come of that, from now on."""
        ...

    def further(self) -> Mapping[str, float]:
        """Epochs that may follow on jobs that have come, of those of which that has changed since the last call."""
        ...


class TraceArrivals:
    """All jobs of a trace, as it says.

    Args:
        jobs: by arrival.
    """

    def __init__(self, jobs: JobColumns) -> None:
        self.most = len(jobs)
        self._arrivals, self._taken = jobs.arrival.tolist(), 0
        self._jobs: Iterator[TraceJob] = iter(jobs)

    @property
    def next(self) -> float:
        """See `ComingJobs`."""
        return self._arrivals[self._taken] if self._taken < self.most else math.inf

    def take(self) -> TraceJob:
        """See `ComingJobs`."""
        self._taken += 1
        return next(self._jobs)

    def ended(self, row: int, now: float) -> None:
        """Nothing comes of it."""

    def further(self) -> Mapping[str, float]:
        """See `ComingJobs`."""
        return {}
