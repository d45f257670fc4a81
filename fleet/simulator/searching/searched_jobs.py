"""The segments of a replayed search as jobs of a simulation: each comes when it is decided."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
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
        devices: that train.
    """

    def __init__(self, record: RecordedSearch, search: Search, devices: int) -> None:
        self._record, self._search, self._devices = record, search, devices
        self._lineages = Lineages()
        self._waiting: deque[TraceJob] = deque()
        self._rows: list[Segment] = []
        self._issued: set[Segment] = set()
        self._open: dict[str, Segment] = {}  # jobs that have come and are not done
        self._known_further: dict[str, float] = {}  # of these
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
        job = self._waiting.popleft()
        self._known_further[job.name] = job.further
        return job

    def ended(self, row: int, now: float) -> None:
        """See `ComingJobs`."""
        name = self._name(self._rows[row])
        del self._open[name], self._known_further[name]
        self._tell(self._rows[row], now)
        self._issue(now)

    def further(self) -> Mapping[str, float]:
        """See `ComingJobs`."""
        found = {name: self._further(self._open[name]) for name in self._known_further}
        changed = {name: epochs for name, epochs in found.items() if epochs != self._known_further[name]}
        self._known_further.update(changed)
        return changed

    def _issue(self, now: float) -> None:
        """Let come what is needed or will be in any case; what takes no time is told at once."""
        while new := [segment for segment in self._wanted() if segment not in self._issued]:
            instant = [segment for segment in new if not self._come(segment, now)]
            for segment in instant:
                self._tell(segment, now)

    def _wanted(self) -> tuple[Segment, ...]:
        return (*self._search.needed(), *self._search.sure(self._devices))

    def _come(self, segment: Segment, now: float) -> bool:
        """Make a job of a segment; False: there is nothing to train."""
        self._issued.add(segment)
        one = self._record.told.trials[segment.trial]
        job, curve = self._record.jobs.get(one.job), self._record.curves.get(one.job)
        epochs = self._known(segment).trained - segment.start
        if job is None or curve is None or epochs <= 0:
            return False
        name, samples = self._name(segment), epochs * epoch_samples(job)
        self._open[name] = segment
        self.curves[name] = curve
        self._rows.append(segment)
        self._waiting.append(
            replace(
                job, name=name, model=name, arrival=now, samples=samples, work=None, duration=None, deadline=None,
                epochs=float(epochs), stream="", line=None,
                further=self._further(segment),
            )
        )  # fmt: skip
        return True

    def _name(self, segment: Segment) -> str:
        return f"{self._record.told.trials[segment.trial].job} {segment.start}-{segment.end}"

    def _further(self, segment: Segment) -> int:
        """Epochs that may follow on a segment, where the end may wait for them."""
        return self._search.further(segment) if self._search.in_tail(self._devices) else 0

    def _tell(self, segment: Segment, now: float) -> None:
        known = self._known(segment)
        self.results.append(Arrived(now, segment, known))
        self._search.tell(segment.trial, segment.end, known.value, known.further)

    def _known(self, segment: Segment) -> Known:
        self._lineages.follow(self._search.decisions)
        return self._record.known(segment.trial, segment.end, self._lineages)
