"""Leases for jobs with deadlines, the rest for best effort (Chronus, SoCC'21)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from benchmarks.papers.edf import MARGIN, by_deadline
from fleet.scheduling.model.arrays import Counts
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, Policy, State, Trigger, check_seconds
from fleet.scheduling.placing.placement import resized
from fleet.scheduling.policies.fifo import too_large


@dataclass(frozen=True)
class Chronus(Policy):
    """Devices are leased for a fixed time; a job with a deadline is admitted if there are leases enough for it.

    Jobs are gangs of the size that they ask for. In the order of their deadlines each takes the earliest leases in
    which its gang is free, where the paper solves an integer program for the leases of all; a newcomer for which there
    are too few, or that would take them from another job, is refused. Free devices of the lease that begins go to jobs
    without deadline, the shortest first. Profiling and the search for better places are left out.

    Args:
        lease: seconds; jobs start, and stop for others, at its multiples alone.
    """

    name: ClassVar[str] = "chronus"
    keeps_minimum: ClassVar[bool] = True

    lease: float = 240.0

    def __post_init__(self) -> None:
        check_seconds("lease", self.lease)
        if not self.lease:
            raise ValueError("lease is 0; it must be a number of seconds above 0, such as 240")

    @property
    def trigger(self) -> Trigger:
        """When a lease ends."""
        return Trigger(self.lease)

    def plan(self, state: State) -> Plan:
        """Who has a lease from now on."""
        promised = [job for job in state.jobs if job.admitted]
        others = [job for job in state.jobs if not job.admitted and not state.is_new(job)]
        leases = self._leased(promised, state)
        admitted: list[str] = []
        dropped: dict[str, str] = {}
        refused: dict[str, None] = {}
        for job in sorted((job for job in state.jobs if state.is_new(job)), key=by_deadline):
            trial = self._leased([*promised, job], state)
            if trial.all_in_time:
                promised.append(job)
                admitted.append(job.name)
                leases = trial
            elif job.soft or job.remaining == math.inf:
                others.append(job)
                refused[job.name] = None
            else:
                dropped[job.name] = "there are not enough leases for it before its deadline"
        dropped |= too_large(others, state.cluster)
        counts = leases.leased | _filled([job for job in others if job.name not in dropped], leases.left)
        return Plan(resized(counts, state), admitted=tuple(admitted), dropped=dropped, promises=refused)

    def _leased(self, jobs: Sequence[JobState], state: State) -> _Leases:
        leases = _Leases(self.lease, state)
        for job in sorted(jobs, key=by_deadline):
            leases.give(job)
        return leases


class _Leases:
    """How many devices are taken in each lease, that which begins now first.

    Attributes:
        all_in_time: whether all jobs so far have enough before their deadlines.
        leased: job -> devices in the lease that begins now.
    """

    def __init__(self, lease: float, state: State) -> None:
        self._lease, self._time = lease, state.time
        self._devices = state.capacity
        self._taken: Counts = np.zeros(1, np.int64)
        self.all_in_time = True
        self.leased: dict[str, int] = {}

    @property
    def left(self) -> int:
        """Devices that are free in the lease that begins now."""
        return self._devices - int(self._taken[0])

    def give(self, job: JobState) -> None:
        """The earliest leases in which its gang is free, as many as it needs; a restart is counted for each."""
        rate, remaining = job.rate(job.gang), job.remaining_at(self._time)
        part = (self._lease - job.restart) * rate
        if part <= 0 or remaining == math.inf or job.gang > self._devices:
            self.all_in_time = False
            return
        needed = max(1, math.ceil(remaining / part - 1e-9))
        if self._time + (needed - 1) * self._lease > job.deadline and not job.admitted:
            self.all_in_time = False
            return
        leases = self._earliest(job.gang, needed)
        last = job.restart + (remaining - (needed - 1) * part) / rate
        self.all_in_time &= self._time + int(leases[-1]) * self._lease + last <= job.deadline - MARGIN
        self._taken[leases] += job.gang
        if leases[0] == 0:
            self.leased[job.name] = job.gang

    def _earliest(self, gang: int, needed: int) -> Counts:
        """The numbers of the first leases with so many free devices."""
        self._taken = np.concatenate((self._taken, np.zeros(needed, np.int64)))
        return np.flatnonzero(self._taken <= self._devices - gang)[:needed]


def _filled(jobs: Sequence[JobState], left: int) -> dict[str, int]:
    """Gangs of the jobs that need least time, as long as there is room."""
    counts: dict[str, int] = {}
    for job in sorted(jobs, key=lambda job: (job.remaining / job.rate(job.gang), job.arrival, job.name)):
        if job.gang <= left:
            counts[job.name] = job.gang
            left -= job.gang
    return counts
