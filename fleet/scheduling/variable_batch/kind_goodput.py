"""Goodput on several kinds of device, even shares by it, and what earlier jobs tell (Sia, SOSP'23, 3.1)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, cast, runtime_checkable

import numpy as np

from fleet.scheduling.model.arrays import Counts, Floats
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve

Shapes = tuple[tuple[int, int], ...]
"""Configurations: the nodes of each, and its devices on all of them together."""


@runtime_checkable
class KindGoodput(Protocol):
    """What a policy may ask of a job whose step times and gradient noise are known; `JobState.scaling` of such a job.

    Attributes:
        application: jobs with the same one train the same network on the same data, as a rule equally long.
        tried: the most devices on which its steps were measured, on any kind; 0: it has not run yet.
        most: the most devices that have a sample each of its largest batch.
        penalty: seconds that a restart is taken to cost.
    """

    application: str
    tried: int
    most: int
    penalty: float

    def rate(self, devices: int, batch: int | None = None, nodes: int = 1) -> float:
        """As `Scaling.rate`, on the kind that the job is at home on."""
        ...

    def worker_rate(self, kind: str) -> float:
        """As `Scaling.worker_rate`."""
        ...

    def curve_on(self, kind: str) -> RateCurve:
        """Goodput on 1, 2, ... devices of that kind at the job's own batch size, samples/s of its first one."""
        ...

    def own_rate(self, kind: str, devices: int) -> float:
        """Samples/s on so many devices of that kind at the job's own batch size, however well each is used."""
        ...

    def goodputs(self, kind: str, shapes: Shapes) -> Floats | None:
        """Goodput, samples/s of the first batch size, in each configuration with the best batch for it.

        Returns:
            float64 of shape (configurations,), 0 where no batch fits; None: nothing of that kind is known.
        """
        ...

    def ratio(self, kind: str, other: str) -> float:
        """How many times as fast one device of `kind` is as one of `other`, at the largest batch that fits."""
        ...


def kind_goodput(job: JobState) -> KindGoodput | None:
    """What is known of the job's goodput by kind; None: it has none. Many times as fast as `isinstance`."""
    return cast(KindGoodput, job.scaling) if hasattr(job.scaling, "goodputs") else None


class EvenShares:
    """The mean number of jobs that were there beside each one, as a policy sees it at its plans."""

    def __init__(self) -> None:
        self._count, self._time = 0, 0.0
        self._passed = 0.0  # job seconds until `_time`
        self._came: dict[str, tuple[float, float]] = {}  # job -> when it was first seen, and the job seconds then

    def see(self, jobs: Sequence[JobState], now: float) -> None:
        """Note who is there.

        Args:
            jobs: the unfinished ones.
            now: seconds since the run began; no earlier than at the last look.
        """
        self._passed += self._count * (now - self._time)
        self._count, self._time = len(jobs), now
        unfinished = {job.name for job in jobs}
        for gone in self._came.keys() - unfinished:
            del self._came[gone]
        for job in jobs:
            self._came.setdefault(job.name, (now, self._passed))

    def seconds(self, jobs: Sequence[JobState], samples: Floats, devices: int) -> Floats:
        """What so many samples take each job on M / N devices, at least one and at most its limit.

        N is the mean number of unfinished jobs since it came.

        Args:
            jobs: those of the last look.
            samples: of each; shape (jobs,).
            devices: M, of all kinds together; each counts as one of the kind that the job is at home on.

        Returns:
            float64 of shape (jobs,).
        """
        rates = np.empty(len(jobs))
        for row, job in enumerate(jobs):
            since, before = self._came[job.name]
            age = self._time - since
            others = (self._passed - before) / age if age > 0 else float(self._count)
            rates[row] = job.rate(max(1, min(int(devices / others), job.limit)))
        return samples / rates


_PARTS = 16  # of a whole training, of which each has its goodput
_NOTES, _ENDS = 400, 16  # that are kept of an application, the last ones
_LEAST = 0.02  # of a whole training, that a job is taken to have left at least


class Outlook(NamedTuple):
    """What is to come of jobs.

    Attributes:
        left: samples that each has left; nan: nobody knows; shape (jobs,).
        pace: samples/s in the mean of what is left, in each configuration; shape (jobs, configurations).
    """

    left: Floats
    pace: Floats


class _Course(NamedTuple):
    """A whole training: its samples, and the seconds from each of its parts on; shape (parts + 1, configurations)."""

    whole: float
    seconds: Floats


@dataclass
class _Application:
    """What was seen of the jobs of one.

    Attributes:
        notes: samples that a job had trained, and seconds of a sample in each configuration then.
        ends: samples of jobs that are done.
        course: of a whole training; None: it is not known, or not computed yet.
    """

    notes: deque[tuple[float, Floats]] = field(default_factory=lambda: deque(maxlen=_NOTES))
    ends: deque[float] = field(default_factory=lambda: deque(maxlen=_ENDS))
    course: _Course | None = None

    def ended(self, samples: float) -> None:
        self.ends.append(samples)
        self.course = None

    def known(self) -> _Course | None:
        """The course of the jobs that are done, in the median; None: no job is."""
        if self.course is None and self.ends and (whole := float(np.median(self.ends))) > 0:
            self.course = _Course(whole, _seconds_from(whole, self.notes))
        return self.course


class EarlierJobs:
    """What a policy has seen of its jobs, by application. It looks at each plan, and never ahead.

    A job whose goodput nobody knows belongs to no application. One that was stopped before its end counts as if it
    had been done, and so the median of the last ones counts.
    """

    def __init__(self) -> None:
        self._applications: dict[str, _Application] = {}
        self._seen: dict[str, tuple[JobState, Floats]] = {}

    def see(self, jobs: Sequence[JobState], goodput: Floats, now: float) -> None:
        """Note who has gone since the last look, and whose goodput is another now.

        Args:
            jobs: the unfinished ones.
            goodput: samples/s of each in each configuration, 0 where it cannot run; shape (jobs, configurations).
            now: seconds since the run began.
        """
        unfinished = {job.name for job in jobs}
        for name in self._seen.keys() - unfinished:
            job, _ = self._seen.pop(name)
            self._applications[application_of(job)].ended(job.trained_at(now))
        for job, rates in zip(jobs, goodput):
            application = application_of(job)
            if application:
                before = self._seen.get(job.name)
                if before is None or not np.array_equal(before[1], rates):
                    seconds = np.divide(1.0, rates, out=np.zeros(len(rates)), where=rates > 0)
                    notes = self._applications.setdefault(application, _Application()).notes
                    notes.append((job.trained_at(now), seconds))
                self._seen[job.name] = job, rates

    def outlook(self, jobs: Sequence[JobState], goodput: Floats, trained: Floats) -> Outlook:
        """What jobs have left by those of their application that are done, and how fast they will get on.

        Args:
            jobs, goodput: as for `see`.
            trained: samples of each so far; shape (jobs,).
        """
        left, pace = np.full(len(jobs), np.nan), goodput.copy()
        for application, rows in by_application(jobs).items():
            course = self._applications[application].known() if application in self._applications else None
            if course is not None:
                rows = rows[trained[rows] < course.whole]
                to_come = np.maximum(course.whole - trained[rows], _LEAST * course.whole)
                seconds = _from(course, course.whole - to_come)
                left[rows] = to_come
                known = (seconds > 0) & (goodput[rows] > 0)
                pace[rows] = np.where(known, to_come[:, np.newaxis] / np.where(known, seconds, 1.0), goodput[rows])
        return Outlook(left, pace)


def application_of(job: JobState) -> str:
    """The application of a job; empty: nobody knows."""
    known = kind_goodput(job)
    return "" if known is None else known.application


def by_application(jobs: Sequence[JobState]) -> dict[str, Counts]:
    """Application -> the rows of its jobs; those of none are left out."""
    rows: dict[str, list[int]] = {}
    for row, job in enumerate(jobs):
        if application := application_of(job):
            rows.setdefault(application, []).append(row)
    return {application: np.array(found) for application, found in rows.items()}


def _seconds_from(whole: float, notes: Sequence[tuple[float, Floats]]) -> Floats:
    """The seconds from each part of a training on; a part of which nobody noted anything is as the one before."""
    place = np.minimum([int(trained / whole * _PARTS) for trained, _ in notes], _PARTS - 1)
    told = np.array([seconds for _, seconds in notes])
    parts = np.empty((_PARTS + 1, told.shape[1]))
    known = told[place == place.min()].mean(axis=0)
    for part in range(_PARTS):
        if (place == part).any():
            known = told[place == part].mean(axis=0)
        parts[part] = known * whole / _PARTS
    parts[_PARTS] = 0.0
    after: Floats = parts[::-1].cumsum(axis=0)[::-1]
    return after


def _from(course: _Course, trained: Floats) -> Floats:
    """Seconds from so many samples on; shape (jobs, configurations)."""
    place = trained / course.whole * _PARTS
    part = np.minimum(place.astype(np.int64), _PARTS - 1)
    over = (place - part)[:, np.newaxis]
    seconds: Floats = (1 - over) * course.seconds[part] + over * course.seconds[part + 1]
    return seconds
