"""The unfinished jobs as policies see them, kept from plan to plan and changed by what has changed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from statistics import median

from fleet.coordination.job_book import JobBook
from fleet.coordination.job_record import JobRecord
from fleet.coordination.stop_time import StopTime
from fleet.scheduling.model.data_path import DataPath
from fleet.scheduling.model.job_state import JobState


class SeenJobs:
    """What policies see of the jobs of a run's books.

    Args:
        jobs: the books' records.
        times: what ends of epochs took.
    """

    def __init__(self, jobs: JobBook, times: StopTime) -> None:
        self._jobs, self._times = jobs, times
        self._seen: dict[str, JobState] = {}
        self._last = -1  # the place of the last one seen
        self._later: set[str] = set(jobs)  # those to look at, as they have changed, or come later
        self._dated: set[str] = set()  # those seen that have a deadline
        self._terms: object = None

    def at(
        self, now: float, restart: float, path: DataPath | None, times: float, hidden: Container[str]
    ) -> Mapping[str, JobState]:
        """Those that have come, whose rates are known, in their order.

        Args:
            restart: most seconds that a job takes to get devices.
            path: how fast preprocessors make samples.
            times: how many times as fast they are together with trainers that may help.
            hidden: jobs that nobody is to see.

        Returns:
            Name -> job; it changes with the books, so read it now.
        """
        terms = (restart, path, times, hidden)
        if terms != self._terms:
            self._terms = terms
            self._later.update(self._jobs)
        self._later |= self._jobs.take_changed()
        grown = False
        for name in list(self._later):
            record = self._jobs[name]
            is_seen = record.waits and record.curve is not None and name not in hidden
            if is_seen and record.state.arrival > now:
                continue
            self._later.discard(name)
            if is_seen:
                grown |= self._is_out_of_order(name)
                self._seen[name] = record.seen(restart, fed_by(path, record), times)
                (self._dated.add if record.state.deadline < math.inf else self._dated.discard)(name)
            elif self._seen.pop(name, None) is not None:
                self._dated.discard(name)
        if grown:
            self._seen = dict(sorted(self._seen.items(), key=lambda item: self._jobs.place(item[0])))
        return with_ends_of_epochs(self._seen, self._dated, self._times) if self._dated else self._seen

    def _is_out_of_order(self, name: str) -> bool:
        if name in self._seen:
            return False
        place = self._jobs.place(name)
        before, self._last = self._last, max(place, self._last)
        return place < before


def with_ends_of_epochs(jobs: Mapping[str, JobState], dated: Iterable[str], times: StopTime) -> Mapping[str, JobState]:
    """Return the jobs, the `dated` ones as fast as they are with what the ends of their epochs take.

    Rates know nothing of it: evaluation, and the checkpoint. One that has ended no epoch yet is thought to take what
    others of its data set take in the median, or all others.
    """
    own = {name: seconds for name in jobs if (seconds := times.epoch_end(name)) is not None}
    of_data = defaultdict[str, list[float]](list)
    for name, seconds in own.items():
        of_data[jobs[name].data].append(seconds)
    usual = {data: median(seconds) for data, seconds in of_data.items()}
    unknown = median(own.values()) if own else 0.0
    held_up = {name: _held_up(jobs[name], own.get(name, usual.get(jobs[name].data, unknown))) for name in dated}
    return {**jobs, **held_up}


def fed_by(path: DataPath | None, job: JobRecord) -> float:
    """Samples/s that preprocessors alone feed a job; infinite: nobody knows."""
    return math.inf if path is None else path.feeds(job.state.data) / job.state.passing


def _held_up(job: JobState, closing: float) -> JobState:
    """The job if each end of an epoch takes so many seconds."""
    seconds = closing / job.epoch if job.epoch else 0.0
    if not seconds:
        return job
    return job.changed(rate=job.rate.held_up(seconds), pace=1 / (1 / job.pace + seconds) if job.pace else 0.0)
