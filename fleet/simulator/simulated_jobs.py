"""A simulation's books: who waits, who runs where, what became of each job, and which events come."""

from __future__ import annotations

import heapq
import math
from collections.abc import Container, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any

import numpy as np

from fleet.scheduling.model import transitions
from fleet.scheduling.model.cluster import Cluster, FreeDevices
from fleet.scheduling.model.jobs import JobState, ServiceWindow
from fleet.scheduling.model.policy import Allocation, BadPlan, check_given
from fleet.scheduling.model.rates import RateCurve


class SimulatedBooks:
    """Mutable, but only by what happens: each method is named after it.

    Args:
        cluster: the machine.
        jobs: how many the trace has; a job is known by its row, and by its name while it is unfinished.
    """

    def __init__(self, cluster: Cluster, jobs: int) -> None:
        self.cluster = cluster
        self._unfinished: dict[str, JobState] = {}
        self.unfinished: Mapping[str, JobState] = MappingProxyType(self._unfinished)
        self.running: dict[str, tuple[int, ...]] = {}
        self.free = FreeDevices(cluster)
        self.unavailable: frozenset[int] = frozenset()
        self.promises: dict[str, Any] = {}
        self.windows: list[ServiceWindow] = []  # what became of promised service levels
        self.row: dict[str, int] = {}
        self.names: list[str] = []  # of those that have arrived, by row
        self.version = [0] * jobs  # of the job's end that was predicted last
        self.begin, self.end, self.service = (np.full(jobs, np.nan) for _ in range(3))
        self.admitted, self.dropped = (np.zeros(jobs, bool) for _ in range(2))
        self.restarts, self.limit = (np.zeros(jobs, np.int64) for _ in range(2))
        self.curve: list[RateCurve | None] = [None] * jobs
        self.samples, self.single = np.zeros(jobs), [1.0] * jobs  # at the arrival; samples/s on one device
        self.held = [0.0] * cluster.size  # device -> seconds that jobs have held it
        self.speedup = 0.0  # of all running jobs over one device each
        self.alone = 0.0  # seconds that one device would have taken for all that was trained

    @property
    def used(self) -> int:
        """Devices that are held."""
        return self.cluster.size - len(self.unavailable) - len(self.free)

    def arrived(self, row: int, job: JobState) -> None:
        """A job is there."""
        self._unfinished[job.name] = job
        self.row[job.name] = row
        self.names.append(job.name)
        self.curve[row], self.samples[row], self.limit[row] = job.rate, job.remaining, job.limit
        self.single[row] = job.rate(1)

    def shown(self, job: JobState) -> None:
        """Policies see a job so from now on: its losses, sharing class, lane or stage are others."""
        self._unfinished[job.name] = job

    def rebatched(self, name: str, batch: int) -> None:
        """A job's steps have so many samples from now on."""
        self._unfinished[name] = transitions.rebatched(self._job(name), batch)

    def promised(self, name: str) -> None:
        """A job's deadline is promised."""
        self._unfinished[name] = transitions.promised(self._job(name))
        self.admitted[self.row[name]] = True

    def service_reset(self, name: str, now: float) -> None:
        """A job's service until now no longer counts against it."""
        self._unfinished[name] = transitions.service_reset(self._job(name), now)

    def refused(self, name: str) -> None:
        """A job leaves and never trains again."""
        self._job(name)
        if name in self.running:
            raise BadPlan(f"job {name} is dropped while it runs; stop it first")
        attained = self.unfinished[name].attained
        row = self._gone(name)
        self.dropped[row], self.service[row] = True, attained

    def given(
        self, name: str, devices: tuple[int, ...], now: float, delay: float, pace: float, anew: bool = True
    ) -> float:
        """A job gets devices, none of which anybody holds, and starts anew on them or goes on.

        Returns:
            When it will be done, seconds.
        """
        job = self._job(name)
        check_given(job, devices, self.cluster)
        before = len(self.free)
        self.free.remove(devices)
        if before - len(self.free) != len(devices):
            raise BadPlan(f"job {name} is given devices {devices}, of which some are not free")
        row = self.row[name]
        again, ready = not math.isnan(self.begin[row]), now + delay
        if not again:
            self.begin[row] = now
        self.running[name] = devices
        after = self._unfinished[name] = transitions.given(job, len(devices), now, ready, pace, again and anew)
        self.restarts[row] = after.restarts
        self.version[row] += 1
        self.speedup += pace / self.single[row]
        return ready + job.remaining / pace

    def repaced(self, name: str, samples: float, since: float, pace: float) -> int:
        """A job with so many samples left goes at another pace from `since` on; return the version of its end."""
        job, row = self.unfinished[name], self.row[name]
        single, self.single[row] = self.single[row], job.rate(1)  # another one, where its curve is that of an epoch
        self.alone += (job.remaining - samples) / single
        self.speedup += pace / self.single[row] - job.pace / single
        self._unfinished[name] = transitions.repaced(job, samples, since, pace)
        self.version[row] += 1
        return self.version[row]

    def taken(self, name: str, now: float) -> None:
        """A job loses all its devices; what it has trained stays."""
        job, held = self.unfinished[name], self.running[name]
        after = self._unfinished[name] = transitions.taken(job, held, now)
        self._release(job, job.remaining - after.remaining, now)
        self.version[self.row[name]] += 1

    def done(self, name: str, now: float) -> None:
        """A job has trained all that it should."""
        job = self.unfinished[name]
        self._release(job, job.remaining, now)
        row = self._gone(name)
        self.end[row], self.service[row] = now, transitions.done(job, now).attained

    def failed(self, devices: frozenset[int]) -> list[str]:
        """Devices fail; return the jobs that held some of them."""
        self.unavailable |= devices
        self.free.remove(devices)
        return [name for name, held in self.running.items() if not devices.isdisjoint(held)]

    def repaired(self, devices: frozenset[int]) -> None:
        """Devices work again."""
        self.unavailable -= devices
        self.free.give(devices)

    def changes(self, allocation: Allocation, anew: Container[str] = ()) -> Mapping[str, tuple[int, ...]]:
        """What of an allocation is new: other devices, or a job that begins anew."""
        running = self.running
        return {job: devices for job, devices in allocation.items() if job in anew or running.get(job) != devices}

    def _job(self, name: str) -> JobState:
        if name not in self.unfinished:
            raise BadPlan(f"job {name} is planned, but is not among the unfinished jobs")
        return self.unfinished[name]

    def _release(self, job: JobState, trained: float, now: float) -> None:
        devices, single = self.running.pop(job.name), self.single[self.row[job.name]]
        lost = self.unavailable
        self.free.give(tuple(device for device in devices if device not in lost) if lost else devices)
        for device in devices:
            self.held[device] += now - job.since
        self.alone += trained / single
        self.speedup = self.speedup - job.pace / single if self.running else 0.0

    def _gone(self, name: str) -> int:
        del self._unfinished[name]
        self.promises.pop(name, None)
        row = self.row.pop(name)
        self.version[row] += 1
        return row


class Kind(IntEnum):
    """What happens; of events at the same instant the smaller goes first."""

    DONE = 0
    REPAIR = 1
    FAILURE = 2
    STAGE = 3
    PREPARED = 4


class Calendar:
    """Events by time, then kind, then the order in which they were entered."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, Kind, int, int, int]] = []
        self._entered = 0

    def enter(self, time: float, kind: Kind, what: int, version: int = 0) -> None:
        """Let `kind` happen to `what` at `time`; the version tells whether it is still meant then."""
        self._entered += 1
        heapq.heappush(self._heap, (time, kind, self._entered, what, version))

    @property
    def next(self) -> float:
        """The time of the first event, seconds; infinite if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def take(self) -> tuple[Kind, int, int]:
        """Take the first event: its kind, to what it happens, and the version."""
        _, kind, _, what, version = heapq.heappop(self._heap)
        return kind, what, version
