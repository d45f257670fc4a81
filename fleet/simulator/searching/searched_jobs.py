"""The segments of a replayed search as jobs of a simulation: each comes when it is decided."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

from fleet.scheduling.model.rates import RateCurve
from fleet.search import Search, Segment
from fleet.simulator.searching.lineages import Lineages
from fleet.simulator.searching.recorded_search import Known, RecordedSearch, epoch_samples
from fleet.simulator.traces.job import TraceJob


@dataclass(frozen=True)
class Arrived:
    """A result of a replayed search.

    Attributes:
        time: when it came, seconds.
        segment: of what.
        known: what it is.
    """

    time: float
    segment: Segment
    known: Known


class SearchedJobs:
    """As `ComingJobs`. A segment that somebody needs is a job; once it is done the search is told its result.

    Args:
        record: what the trials came to.
        search: that decides; it has just begun.
    """

    def __init__(self, record: RecordedSearch, search: Search) -> None:
        self._record, self._search = record, search
        self._lineages = Lineages()
        self._waiting: deque[TraceJob] = deque()
        self._rows: list[Segment] = []
        self._issued: set[Segment] = set()
        self.curves: dict[str, RateCurve] = {}  # of jobs that have come
        self.results: list[Arrived] = []
        self._issue(0.0)

    @property
    def most(self) -> int:
        """See `ComingJobs`: each epoch of each trial a segment."""
        return len(self._record.told.trials) * self._record.section.epochs + 1

    @property
    def next(self) -> float:
        """See `ComingJobs`."""
        return self._waiting[0].arrival if self._waiting else math.inf

    def take(self) -> TraceJob:
        """See `ComingJobs`."""
        return self._waiting.popleft()

    def ended(self, row: int, now: float) -> None:
        """See `ComingJobs`."""
        self._tell(self._rows[row], now)
        self._issue(now)

    def _issue(self, now: float) -> None:
        """Let come what is needed; what takes no time is told at once."""
        while new := [segment for segment in self._search.needed() if segment not in self._issued]:
            instant = [segment for segment in new if not self._come(segment, now)]
            for segment in instant:
                self._tell(segment, now)

    def _come(self, segment: Segment, now: float) -> bool:
        """Make a job of a segment; False: there is nothing to train."""
        self._issued.add(segment)
        one = self._record.told.trials[segment.trial]
        job, curve = self._record.jobs.get(one.job), self._record.curves.get(one.job)
        epochs = self._known(segment).trained - segment.start
        if job is None or curve is None or epochs <= 0:
            return False
        name, samples = f"{one.job} {segment.start}-{segment.end}", epochs * epoch_samples(job)
        self.curves[name] = curve
        self._rows.append(segment)
        self._waiting.append(
            replace(
                job, name=name, model=name, arrival=now, samples=samples, work=None, duration=None, deadline=None,
                epochs=float(epochs), stream="", line=None,
            )
        )  # fmt: skip
        return True

    def _tell(self, segment: Segment, now: float) -> None:
        known = self._known(segment)
        self.results.append(Arrived(now, segment, known))
        self._search.tell(segment.trial, segment.end, known.value, known.further)

    def _known(self, segment: Segment) -> Known:
        self._lineages.follow(self._search.decisions)
        return self._record.known(segment.trial, segment.end, self._lineages)
