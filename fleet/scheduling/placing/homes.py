"""On which kind of device each job trains, where a policy plans for each kind alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.job_state import JobState, Scaling
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.model.state import State

GAIN = 1.1
"""So many times as fast a lone job must be on an idle kind of device, to move there."""


@runtime_checkable
class KnowsKinds(Scaling, Protocol):
    """A `Scaling` that has a rate curve for each kind of device."""

    def curve_on(self, kind: str) -> RateCurve:
        """r(m) on m devices of that kind alone, samples/s."""
        ...


def curve_on(job: JobState, kind: str) -> RateCurve:
    """The job's rate curve on a kind of device; the only one that is known, where it has no other."""
    return job.scaling.curve_on(kind) if isinstance(job.scaling, KnowsKinds) else job.rate


class Homes:
    """Deals jobs over the kinds, so that all kinds are done at about the same time.

    A job stays where it runs, where it was promised something, and, if its bits hold for one kind alone, on the kind
    that it prefers or began on. The others go, largest first, where they are done soonest behind those that are there.
    A kind on which nobody trains takes a job from others that may move. Nobody goes to a kind without a device that can
    be given, and who may move leaves it.

    Args:
        state: the jobs and devices.
        fixed: job -> kind, where something was decided already.
    """

    def __init__(self, state: State, fixed: Mapping[str, str]) -> None:
        self._state, self._fixed = state, fixed
        self._devices = available(state.cluster, state.unavailable)
        self._alive = [kind for kind, devices in self._devices.items() if devices] or list(self._devices)
        self._load = dict.fromkeys(self._devices, 0.0)
        self.of: dict[str, str] = {}
        """Job -> kind."""
        self._settle()
        self._fill_idle_kinds()

    def _settle(self) -> None:
        waiting = []
        for job in self._state.jobs:
            kind = self._bound(job)
            if kind:
                self._assign(job, kind)
            else:
                waiting.append(job)
        for job in sorted(waiting, key=lambda job: (-min(self._work(job, kind) for kind in self._alive), job.name)):
            self._assign(job, min(self._alive, key=lambda kind: self._load[kind] + self._work(job, kind)))

    def _bound(self, job: JobState) -> str:
        """The kind on which the job is for now; "" if any will do."""
        devices = self._state.running.get(job.name)
        if devices and not (job.mixed_kinds and self._state.unavailable.issuperset(devices)):
            return self._state.cluster.kind_of(devices[0])
        if self._fixed.get(job.name) in self._alive:
            return self._fixed[job.name]
        return job.kind if job.kind in self._load and not job.mixed_kinds else ""

    def _assign(self, job: JobState, kind: str) -> None:
        self.of[job.name] = kind
        self._load[kind] += self._work(job, kind)

    def _work(self, job: JobState, kind: str) -> float:
        """Seconds in which all devices of that kind would train what the job has left, if it scaled without loss."""
        left = job.remaining_at(self._state.time)
        samples = left if math.isfinite(left) else max(job.epoch, 1.0)
        return samples / curve_on(job, kind)(1) / max(1, self._devices[kind])

    def _fill_idle_kinds(self) -> None:
        """Move a job to each kind that has devices and no job: the longest of those that may, where that pays."""
        for kind, devices in self._devices.items():
            if devices and kind not in self.of.values():
                movable = [job for job in self._state.jobs if self._may_move(job, kind)]
                if movable:
                    self.of[max(movable, key=lambda job: (self._left(job, self.of[job.name]), job.name)).name] = kind

    def _may_move(self, job: JobState, kind: str) -> bool:
        home = self.of[job.name]
        if self._is_tied(job) or self._left(job, kind) < 2 * job.restart:
            return False
        crowded = sum(other == home for other in self.of.values()) > self._devices[home]
        return crowded or self._left(job, home) > GAIN * (self._left(job, kind) + job.restart)

    def _is_tied(self, job: JobState) -> bool:
        begun = job.name in self._state.running or bool(job.last)
        return job.name in self._fixed or (not job.mixed_kinds and (begun or bool(job.kind)))

    def _left(self, job: JobState, kind: str) -> float:
        """Seconds that the job would train alone on as many devices of that kind as help."""
        curve, most = curve_on(job, kind), max(1, min(job.limit, self._devices[kind]))
        return job.remaining_at(self._state.time) / curve(curve.peak(most))


def available(cluster: Cluster, unavailable: Iterable[int]) -> dict[str, int]:
    """Kind -> devices that can be given."""
    counts = cluster.counts()
    for device in unavailable:
        counts[cluster.kind_of(device)] -= 1
    return counts
