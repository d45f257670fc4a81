"""Earliest deadline first, alone and with admission control (Liu and Layland, 1973; ElasticFlow, ASPLOS'23, 6)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, Policy, State, check_flag, check_seconds
from fleet.scheduling.placing.placement import resized

MARGIN = 1e-6
"""Seconds before its deadline at which a job must be done: what clocks and rounding may take."""


def by_deadline(job: JobState) -> tuple[float, float, str]:
    """The order: the nearest deadline, then first come, first served."""
    return job.deadline, job.arrival, job.name


@dataclass(frozen=True)
class ScaleOut:
    """How many devices a job takes of those that are left to it.

    Args:
        stop_at_peak: the count with the highest rate is the most that it takes (ElasticFlow, ASPLOS'23, 6.1: "as many
            as a job can scale out without decreasing the throughput"); otherwise the largest one that was measured,
            as the authors' program does, be it slower or not.
        elastic: where fewer are left, it takes the largest power of two of them; otherwise it waits, and with it
            everybody behind it.
    """

    stop_at_peak: bool = False
    elastic: bool = True

    def most(self, job: JobState, devices: int) -> int:
        """What it takes of an empty cluster."""
        limit = min(job.limit, devices)
        if self.stop_at_peak:
            return job.rate.peak(limit)
        changes = np.flatnonzero(np.diff(job.rate.rates(limit)))
        return int(changes[-1]) + 2 if len(changes) else 1

    def taken(self, most: int, left: int) -> int:
        """What it takes of `left` devices."""
        if left >= most:
            return most
        return 1 << left.bit_length() - 1 if self.elastic and left else 0


def now_running(jobs: Sequence[JobState], devices: int, scale: ScaleOut) -> dict[str, int]:
    """Job -> its devices, one job after the other in the given order; those with none are left out."""
    counts: dict[str, int] = {}
    left = devices
    for job in jobs:
        count = scale.taken(scale.most(job, devices), left)
        if count:
            counts[job.name] = count
            left -= count
        elif not scale.elastic:
            break
    return counts


class Projection:
    """What earliest deadline first would do from now on if nobody else came.

    Args:
        now: seconds since the run began.
        devices: number of devices of the cluster.
        scale: how many devices a job takes.
        interval: seconds; devices are given anew at its multiples alone. 0: at once.
    """

    def __init__(self, now: float, devices: int, scale: ScaleOut, interval: float = 0.0) -> None:
        self._scale, self._devices, self._interval = scale, devices, interval
        self._times, self._free = [now], [devices]

    def in_time(self, jobs: Sequence[JobState]) -> bool:
        """Whether all of these, in the order of their deadlines, would be done by then."""
        return all(self.add(job) <= job.deadline - MARGIN for job in jobs)

    def add(self, job: JobState) -> float:
        """Give the job what those before it leave, and tell when it is done, seconds; each move costs a restart."""
        most = self._scale.most(job, self._devices)
        rate: Mapping[int, float] = {count: job.rate(count) for count in {most, *_powers(most)}}
        left, count, ready = job.remaining_at(self._times[0]), job.held if job.pace else 0, job.ready
        for piece, begin in enumerate(self._times):
            end = self._times[piece + 1] if piece + 1 < len(self._times) else math.inf
            taken = self._scale.taken(most, self._free[piece])
            if taken != count:
                count, ready = taken, begin + job.restart
            if not count:
                continue
            first = max(begin, ready)
            done = first + left / rate[count] if first < end else math.inf
            self._free[piece] -= count
            if done <= end:
                self._give_back(piece, count, done)
                return done
            left -= rate[count] * max(0.0, end - first)
        return math.inf

    def _give_back(self, piece: int, count: int, done: float) -> None:
        """From `done` on, or from the end of its interval on, the job's devices are free again."""
        freed = math.ceil(done / self._interval - 1e-9) * self._interval if self._interval else done
        while piece + 1 < len(self._times) and self._times[piece + 1] < freed:
            piece += 1
            self._free[piece] -= min(count, self._free[piece])
        if piece + 1 == len(self._times) or self._times[piece + 1] > freed > self._times[piece]:
            self._times.insert(piece + 1, freed)
            self._free.insert(piece + 1, self._free[piece] + count)


def _powers(most: int) -> list[int]:
    return [1 << exponent for exponent in range(most.bit_length())]


@dataclass(frozen=True)
class Edf(Policy):
    """The job with the nearest deadline takes as many devices as it can use, then the next; nobody is refused.

    A job whose deadline has passed stays first until it is done.

    Args:
        stop_at_peak: whether a job takes no more devices than make it faster, see `ScaleOut`.
        elastic: whether a job also runs on fewer devices than that.
        interval: seconds; what happens waits for the next multiple of it. 0: nothing waits.
    """

    name: ClassVar[str] = "edf"

    stop_at_peak: bool = False
    elastic: bool = True
    interval: float = 0.0

    def __post_init__(self) -> None:
        check_flag("stop_at_peak", self.stop_at_peak)
        check_flag("elastic", self.elastic)
        check_seconds("interval", self.interval)

    def plan(self, state: State) -> Plan:
        """The nearest deadlines first."""
        devices = state.capacity
        scale = ScaleOut(self.stop_at_peak, self.elastic)
        return Plan(resized(now_running(sorted(state.jobs, key=by_deadline), devices, scale), state))


@dataclass(frozen=True)
class EdfAdmission(Policy):
    """Like `edf`, but admit a job only if it and all admitted jobs would be done in time.

    The plans of earliest deadline first for the admitted jobs and the newcomer are projected to the end. Jobs without
    a deadline, and jobs whose soft deadline was not promised, have the devices that are left over.

    Args:
        stop_at_peak: whether a job takes no more devices than make it faster, see `ScaleOut`.
        interval: seconds; what happens waits for the next multiple of it. 0: nothing waits.
    """

    name: ClassVar[str] = "edf-admission"

    stop_at_peak: bool = False
    interval: float = 0.0

    def __post_init__(self) -> None:
        check_flag("stop_at_peak", self.stop_at_peak)
        check_seconds("interval", self.interval)

    def plan(self, state: State) -> Plan:
        """Admit or refuse who is new, in the order of arrival; then the nearest deadlines first."""
        promised = [job for job in state.jobs if job.admitted]
        others = [job for job in state.jobs if not job.admitted and not state.is_new(job)]
        admitted: list[str] = []
        dropped: dict[str, str] = {}
        refused: dict[str, None] = {}
        for job in sorted(state.jobs, key=lambda job: (job.arrival, job.name)):
            if state.is_new(job):
                if self._fits([*promised, job], state):
                    promised.append(job)
                    admitted.append(job.name)
                elif job.soft or job.remaining == math.inf:
                    others.append(job)
                    refused[job.name] = None
                else:
                    dropped[job.name] = "its deadline, or one that was promised already, could not be met"
        devices = state.capacity
        line = sorted(promised, key=by_deadline) + sorted(others, key=lambda job: (job.arrival, job.name))
        counts = now_running(line, devices, ScaleOut(self.stop_at_peak))
        return Plan(resized(counts, state), admitted=tuple(admitted), dropped=dropped, promises=refused)

    def _fits(self, jobs: list[JobState], state: State) -> bool:
        devices = state.capacity
        projection = Projection(state.time, devices, ScaleOut(self.stop_at_peak), self.interval)
        return projection.in_time(sorted(jobs, key=by_deadline))
