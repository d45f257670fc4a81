"""The records of a run's jobs."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from statistics import median
from typing import NoReturn, TypeVar

from fleet.coordination.job_record import JobRecord
from fleet.scheduling.easyscale.kind_curves import KindCurves
from fleet.scheduling.model.data_path import DataPath
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import DEFAULT_EFFICIENCY, expected_efficiency

_T = TypeVar("_T")
_RECENT = 16
"""So many jobs tell what to expect of another one; a search has very many."""


class JobTable(dict[str, JobRecord]):
    """Records by name, in the order in which jobs came.

    It knows which of them could go on, so that asking for these costs nothing for those that are over or pause.

    Args:
        jobs: the first ones.
    """

    def __init__(self, jobs: Iterable[JobRecord]) -> None:
        super().__init__()
        self._places: dict[str, int] = {}
        self._names: list[str] = []  # by place
        self._waiting: list[int] = []  # places, ascending
        self._unrated: set[int] = set()  # of those that wait
        self._guessed: list[int] = []  # of those that wait and have no devices, ascending
        self.ahead: set[str] = set()
        """Names of those that train ahead of need."""
        self.late: set[str] = set()
        """Names of the unfinished ones that are known to be late for the deadline that they were promised."""
        self.news = 0
        """Grows as a job comes, or one begins, ends or pauses, finishes an epoch, is saved, or may train further."""
        self.sharing = Counter[str]()
        """Stream -> how many jobs have it."""
        self._awaited = defaultdict[str, Counter[int]](Counter)
        self._gone: set[str] = set()
        self._changed: set[str] = set()
        self._efficiencies: list[float] = []  # ascending
        self._efficiency: dict[str, float] = {}
        self._expected = DEFAULT_EFFICIENCY
        self._unlike: set[str] = set()  # see `scaling_unlike_others`
        for job in jobs:
            self[job.name] = job

    def __setitem__(self, name: str, job: JobRecord) -> None:
        before = self.get(name)
        self.news += before is None or _standing(before) != _standing(job)
        super().__setitem__(name, job)
        self._changed.add(name)
        if before is None:
            self._places[name] = len(self._names)
            self._names.append(name)
            self.sharing[job.stream] += 1
        place, waited, waits = self._places[name], before is not None and before.waits, job.waits
        if waits and not waited:
            insort(self._waiting, place)
        elif waited and not waits:
            del self._waiting[bisect_left(self._waiting, place)]
            self._gone.add(job.stream)
        if before is not None and waited:
            self._awaited[before.stream][before.epoch] -= 1
        if waits:
            self._awaited[job.stream][job.epoch] += 1
        _keep(self._unrated, place, waits and job.curve is None)
        if (is_guess := _waits_with_a_guess(job)) != (before is not None and _waits_with_a_guess(before)):
            if is_guess:
                insort(self._guessed, place)
            else:
                del self._guessed[bisect_left(self._guessed, place)]
        _keep(self.ahead, name, job.state.ahead)
        _keep(self.late, name, waits and job.promise is not None and job.promise.status == "late")
        if before is None or before.curve is not job.curve or before.by_kind is not job.by_kind:
            self._note_efficiency(name, job)
        _keep(self._unlike, name, self._is_unlike(job))

    def __delitem__(self, name: str) -> NoReturn:
        raise TypeError("jobs stay in the books of a run")

    def take_changed(self) -> set[str]:
        """Return the names of the jobs that have changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def take_gone(self) -> set[str]:
        """Return the streams of which a job that could go on can no more, or pauses, since the last call."""
        gone, self._gone = self._gone, set()
        return gone

    def first_awaited(self, stream: str, but: Iterable[str] = ()) -> int | None:
        """The first epoch of a stream that those who could go on have yet to read; None: nobody does.

        Args:
            but: names of jobs that do not count.
        """
        awaited = self._awaited[stream]
        out = Counter(job.epoch for job in map(self.__getitem__, but) if job.waits and job.stream == stream)
        return min((epoch for epoch, jobs in awaited.items() if jobs > out[epoch]), default=None)

    def place(self, name: str) -> int:
        """How many jobs came before that one."""
        return self._places[name]

    @property
    def unfinished(self) -> list[JobRecord]:
        """Those that could go on, or run."""
        return [self[self._names[place]] for place in self._waiting]

    @property
    def are_over(self) -> bool:
        """Whether none could go on, and none runs."""
        return not self._waiting

    @property
    def unrated(self) -> JobRecord | None:
        """The first of the unfinished ones whose rates nobody knows; None: all are known."""
        return self[self._names[min(self._unrated)]] if self._unrated else None

    @property
    def guessed(self) -> Iterator[JobRecord]:
        """The unfinished ones without devices whose rates are a guess."""
        return (self[self._names[place]] for place in self._guessed)

    @property
    def efficiency(self) -> float:
        """See `expected_efficiency`; jobs whose rates are known by kind of device do not count."""
        return expected_efficiency(self._efficiencies)

    def scaling_unlike_others(self) -> list[str]:
        """The unfinished ones, timed on a single number of devices, whose rates on others follow another efficiency."""
        if (expected := self.efficiency) != self._expected:
            self._expected = expected
            self._unlike = {job.name for job in self.unfinished if self._is_unlike(job)}
        return sorted(self._unlike, key=self.place)

    def _is_unlike(self, job: JobRecord) -> bool:
        curve = job.curve
        if not job.waits or curve is None or job.by_kind is not None or curve.efficiency is not None:
            return False
        return curve.expected != self._expected

    def recent(self, kind: str) -> list[JobRecord]:
        """The jobs that came last of those whose rates are known on a kind of device, and not guessed."""
        return list(islice((job for job in reversed(self.values()) if kind in job.curves and not job.guessed), _RECENT))

    def recent_kinds(self) -> list[KindCurves]:
        """The rates by kind of the jobs that came last of those that have such."""
        return list(islice((job.by_kind for job in reversed(self.values()) if job.by_kind is not None), _RECENT))

    def _note_efficiency(self, name: str, job: JobRecord) -> None:
        before = self._efficiency.pop(name, None)
        if before is not None:
            del self._efficiencies[bisect_left(self._efficiencies, before)]
        now = None if job.by_kind is not None or job.curve is None else job.curve.efficiency
        if now is not None:
            self._efficiency[name] = now
            insort(self._efficiencies, now)


def _keep(members: set[_T], member: _T, holds: bool) -> None:
    if holds:
        members.add(member)
    else:
        members.discard(member)


def _waits_with_a_guess(job: JobRecord) -> bool:
    return job.guessed and job.waits and job.status == "pending"


def _standing(job: JobRecord) -> tuple[object, ...]:
    return job.status, job.epoch, job.until, job.checkpoint, job.state.ahead


class PolicyJobs:
    """What policies see of the jobs of a run's books.

    Args:
        jobs: the books' records.
        times: what ends of epochs took.
    """

    def __init__(self, jobs: JobTable, times: StopTime) -> None:
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


NEWEST = 0.3
"""What the last epoch counts in a mean."""


@dataclass
class StopTime:
    """Longest times of each job, seconds; one of which nothing is known is thought to take as long as the longest.

    Attributes:
        saving: job -> what a checkpoint took.
        deaf: job -> how long it heard of no wish in its last epoch.
        usual: job -> what a checkpoint takes in the mean.
        beside: job -> what an epoch takes in the mean beside its steps and its checkpoint: evaluation, most of all.
    """

    saving: dict[str, float] = field(default_factory=dict)
    deaf: dict[str, float] = field(default_factory=dict)
    usual: dict[str, float] = field(default_factory=dict)
    beside: dict[str, float] = field(default_factory=dict)

    def saved(self, job: str, seconds: float) -> None:
        """A checkpoint took so long."""
        self.saving[job] = max(self.saving.get(job, 0.0), seconds)
        _average(self.usual, job, seconds)

    def ended_epoch(self, job: str, beside: float) -> None:
        """An epoch took so many seconds beside its steps."""
        _average(self.beside, job, max(0.0, beside))

    def epoch_end(self, job: str) -> float | None:
        """What an end of the job's epochs takes, evaluation and checkpoint; None: it has ended none yet."""
        return self.beside[job] + self.usual.get(job, 0.0) if job in self.beside else None

    def of(self, steps: Mapping[str, float]) -> float:
        """From a wish to stop until all running jobs are saved, where a step of each takes so long.

        Until the last of them hears of it, after a step or an evaluation, and their checkpoints one by one.
        """
        deafest, longest = max(self.deaf.values(), default=0.0), max(self.saving.values(), default=0.0)
        hearing = max((max(self.deaf.get(job, deafest), seconds) for job, seconds in steps.items()), default=0.0)
        return hearing + sum(self.saving.get(job, longest) for job in steps)


def _average(means: dict[str, float], job: str, seconds: float) -> None:
    before = means.get(job, seconds)
    means[job] = before + NEWEST * (seconds - before)
