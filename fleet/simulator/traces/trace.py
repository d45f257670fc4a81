"""A trace: jobs in the order of their arrival."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fleet.scheduling.model.data_path import Feed
from fleet.scheduling.model.rates import RateCurve
from fleet.simulator.traces.columns import JobColumns
from fleet.simulator.traces.coming import ComingJobs, TraceArrivals
from fleet.simulator.traces.job import TraceJob


@dataclass(frozen=True, eq=False)
class Trace:
    """Jobs by arrival, which begins at 0; those that arrive together stand in the order of the file.

    Attributes:
        jobs: a sequence of `TraceJob`, and the same as columns.
        file: where it was read from, as the user named it; empty if it was made.
        format: name of the file's format.
        offset: what the file counts from its own origin to the first arrival, seconds: added to `arrival` and
            `deadline` of a job it gives the file's numbers.
        notes: what of the file was left out or changed, and why; for people.
        curves: job -> its rate curve, samples/s, where a run measured it.
        losses: job -> the loss of each of its epochs, from the first; policies see them once the epochs are over.
        feeds: job -> how fast all preprocessors make what it reads, where that is known.
        any_epoch: whether jobs of a stream share it at whatever epochs they are, as in FLEET's paper. In a run of fleet
            each epoch has an order of its own: jobs share at the same epoch alone.
        growing: jobs that come of others, in place of `jobs`.
    """

    jobs: JobColumns
    file: str = ""
    format: str = ""
    offset: float = 0.0
    notes: tuple[str, ...] = ()
    curves: Mapping[str, RateCurve] = field(default_factory=dict)
    losses: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    feeds: Mapping[str, Feed] = field(default_factory=dict)
    any_epoch: bool = False
    growing: ComingJobs | None = None

    @classmethod
    def of(cls, columns: JobColumns, file: str = "", format: str = "", notes: tuple[str, ...] = ()) -> Trace:
        """A trace of columns in any order whose times count from any origin."""
        offset = float(columns.arrival.min()) if len(columns) else 0.0
        if (np.diff(columns.arrival) < 0).any():
            columns = columns.take(np.argsort(columns.arrival, kind="stable"))
        return cls(columns.shifted(-offset) if offset else columns, file, format, offset, notes)

    def with_curves(self, curves: Mapping[str, RateCurve]) -> Trace:
        """Return the trace with these rate curves."""
        return replace(self, curves=dict(curves))

    def with_losses(self, losses: Mapping[str, tuple[float, ...]]) -> Trace:
        """Return the trace with how the jobs' losses fall."""
        return replace(self, losses=dict(losses))

    def with_feeds(self, feeds: Mapping[str, Feed]) -> Trace:
        """Return the trace with how fast the jobs' samples are made."""
        return replace(self, feeds=dict(feeds))

    def coming(self) -> ComingJobs:
        """The jobs as they come in a simulation."""
        return self.growing or TraceArrivals(self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[TraceJob]:
        return iter(self.jobs)
