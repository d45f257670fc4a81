"""What jobs of an application tell about those that come later: how much they train, and their goodput on the way."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fleet.scheduling.model.arrays import Counts, Floats
from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.variable_batch.kind_goodput import kind_goodput

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
