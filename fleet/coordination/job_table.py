"""All jobs of a run: their records, and what policies see of them.

`JobTable` holds the records and keeps indices, so that an event costs no look at all jobs; `PolicyJobs` is the
policies' view, changed by what has changed; `StopTime` estimates what ends of epochs and a stop take.
"""

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
"""How many jobs tell what to expect of another one; a search has very many."""


class JobTable(dict[str, JobRecord]):
    """Records by name, in the order in which jobs came, with indices of those that could go on.

    Args:
        jobs: the first records.

    Attributes:
        ahead: names of jobs that train ahead of need.
        late: names of unfinished jobs that are known to miss the deadline that they were promised.
        news: grows as a job comes, begins, ends, pauses, finishes an epoch, is saved, or may train further.
        sharing: stream -> how many jobs have it.
    """

    def __init__(self, jobs: Iterable[JobRecord]) -> None:
        super().__init__()
        self._places: dict[str, int] = {}
        self._names: list[str] = []  # by place
        self._waiting: list[int] = []  # places of those that could go on, ascending
        self._unrated: set[int] = set()  # of those that wait
        self._guessed: list[int] = []  # of those that wait and have no devices, ascending
        self.ahead: set[str] = set()
        self.late: set[str] = set()
        self.news = 0
        self.sharing = Counter[str]()
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
        raise TypeError("jobs stay in a run")

    def take_changed(self) -> set[str]:
        """Return the names of the jobs that have changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def take_gone(self) -> set[str]:
        """Return the streams of which a job that could go on can no more, or pauses, since the last call."""
        gone, self._gone = self._gone, set()
        return gone

    def first_awaited(self, stream: str, but: Iterable[str] = ()) -> int | None:
        """Return the first epoch of a stream that those who could go on have yet to read; None: there is none.

        Args:
            but: names of jobs that do not count.
        """
        awaited = self._awaited[stream]
        out = Counter(job.epoch for job in map(self.__getitem__, but) if job.waits and job.stream == stream)
        return min((epoch for epoch, jobs in awaited.items() if jobs > out[epoch]), default=None)

    def place(self, name: str) -> int:
        """Return how many jobs came before that one."""
        return self._places[name]

    @property
    def unfinished(self) -> list[JobRecord]:
        """Records of the jobs that run or could go on."""
        return [self[self._names[place]] for place in self._waiting]

    @property
    def are_over(self) -> bool:
        """Whether none could go on, and none runs."""
        return not self._waiting

    @property
    def unrated(self) -> JobRecord | None:
        """The first unfinished job whose rates nobody knows; None: all are known."""
        return self[self._names[min(self._unrated)]] if self._unrated else None

    @property
    def guessed(self) -> Iterator[JobRecord]:
        """Unfinished jobs without devices whose rates are a guess."""
        return (self[self._names[place]] for place in self._guessed)

    @property
    def efficiency(self) -> float:
        """The `expected_efficiency` of all jobs but those whose rates are known by kind of device."""
        return expected_efficiency(self._efficiencies)

    def scaling_unlike_others(self) -> list[str]:
        """Return unfinished jobs, timed on one number of devices, whose other rates follow another efficiency."""
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
        """Return the last jobs whose rates are known on a kind of device, and not guessed."""
        return list(islice((job for job in reversed(self.values()) if kind in job.curves and not job.guessed), _RECENT))

    def recent_kinds(self) -> list[KindCurves]:
        """Return the rates by kind of device of the last jobs that have such."""
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
    """The unfinished jobs as policies see them, kept from plan to plan.

    Args:
        jobs: of the run.
        times: what ends of epochs took.
    """

    def __init__(self, jobs: JobTable, times: StopTime) -> None:
        self._jobs, self._times = jobs, times
        self._seen: dict[str, JobState] = {}
        self._last = -1  # the last place that is seen
        self._later: set[str] = set(jobs)  # those that have changed, or arrive later
        self._dated: set[str] = set()  # those with a deadline
        self._terms: object = None

    def at(
        self, now: float, restart: float, path: DataPath | None, times: float, hidden: Container[str]
    ) -> Mapping[str, JobState]:
        """Return the jobs that have arrived and whose rates are known, in their order.

        Args:
            restart: most seconds that a job takes to get devices.
            path: how fast preprocessors make samples.
            times: how many times as fast they are together with trainers that may help.
            hidden: jobs that policies shall not see.

        Returns:
            Name -> job; it changes with the run, so read it at once.
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
    slower = {name: _with_pauses(jobs[name], own.get(name, usual.get(jobs[name].data, unknown))) for name in dated}
    return {**jobs, **slower}


def fed_by(path: DataPath | None, job: JobRecord) -> float:
    """Return the samples/s that preprocessors alone feed a job; infinite: nobody knows."""
    return math.inf if path is None else path.feeds(job.state.data) / job.state.passing


def _with_pauses(job: JobState, closing: float) -> JobState:
    """Return the job as if each end of an epoch takes so many seconds."""
    seconds = closing / job.epoch if job.epoch else 0.0
    if not seconds:
        return job
    return job.changed(rate=job.rate.held_up(seconds), pace=1 / (1 / job.pace + seconds) if job.pace else 0.0)


NEWEST = 0.3
"""Weight of the last epoch in a mean."""


@dataclass
class StopTime:
    """Seconds that stops and ends of epochs take, by job; an unknown job is thought to take as long as the longest.

    Attributes:
        saving: job -> what a checkpoint took.
        deaf: job -> how long it did not hear whether to stop in its last epoch.
        usual: job -> what a checkpoint takes in the mean.
        beside: job -> what an epoch takes in the mean beside its steps and its checkpoint: evaluation, most of all.
    """

    saving: dict[str, float] = field(default_factory=dict)
    deaf: dict[str, float] = field(default_factory=dict)
    usual: dict[str, float] = field(default_factory=dict)
    beside: dict[str, float] = field(default_factory=dict)

    def saved(self, job: str, seconds: float) -> None:
        """Note what a checkpoint took."""
        self.saving[job] = max(self.saving.get(job, 0.0), seconds)
        _average(self.usual, job, seconds)

    def ended_epoch(self, job: str, beside: float) -> None:
        """Note what an epoch took beside its steps."""
        _average(self.beside, job, max(0.0, beside))

    def epoch_end(self, job: str) -> float | None:
        """Return what an end of the job's epochs takes, evaluation and checkpoint; None: it has ended none yet."""
        return self.beside[job] + self.usual.get(job, 0.0) if job in self.beside else None

    def of(self, steps: Mapping[str, float]) -> float:
        """Return the seconds from a request to stop until all running jobs are saved; `steps`: job -> seconds of a
        step.

        The last of them hears of it after a step or an evaluation; their checkpoints come one by one.
        """
        deafest, longest = max(self.deaf.values(), default=0.0), max(self.saving.values(), default=0.0)
        hearing = max((max(self.deaf.get(job, deafest), seconds) for job, seconds in steps.items()), default=0.0)
        return hearing + sum(self.saving.get(job, longest) for job in steps)


def _average(means: dict[str, float], job: str, seconds: float) -> None:
    before = means.get(job, seconds)
    means[job] = before + NEWEST * (seconds - before)
