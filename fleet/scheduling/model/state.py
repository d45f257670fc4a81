"""What a policy is told, and what it answers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.free_devices import FreeDevices
from fleet.scheduling.model.job_state import JobState

__all__ = ["Allocation", "Cluster", "JobState", "State", "validate"]

Allocation = Mapping[str, tuple[int, ...]]
"""Job -> the devices that it should have from now on, ascending; the first is the group's master."""


@dataclass(frozen=True)
class State:
    """The whole of what a policy may know.

    Attributes:
        cluster: the machine.
        by_name: the unfinished jobs, in spec order or by arrival. These are the driver's own books: read them now,
            and never keep them.
        running: job -> devices that it holds now, also while it has been asked to stop; the driver's own books, too.
        formed: the allocation with which the current round began; may name jobs that are finished by now.
        unavailable: devices that nobody can be given.
        seed: root of every random draw.
        time: seconds since the run began.
        changed: jobs that came, ended or stopped since the plan that left `memo`, whose rates are others now, or that
            have got less far than they should have.
        memo: the last plan's memo, see `Plan`; None: there is none, or more has changed than `changed` says.
        promises: job -> what the policy promised it last, see `Plan`; the driver's own books, too.
        margin: seconds that promised deadlines leave in case plans, messages or steps are late; 0 if they never are.
        refined: jobs whose rates were guessed, or not known for that many devices, when the current round began, and
            that training has told since.
        costs: kind -> what a device of it costs, in units of what it brings, see `WithinPrices`; empty: nothing.
    """

    cluster: Cluster
    by_name: Mapping[str, JobState]
    running: Allocation = field(default_factory=dict)
    formed: Allocation = field(default_factory=dict)
    unavailable: frozenset[int] = frozenset()
    seed: int = 0
    time: float = 0.0
    changed: tuple[str, ...] = ()
    memo: Any = None
    books: FreeDevices | None = None
    promises: Mapping[str, Any] = field(default_factory=dict)
    margin: float = 0.0
    refined: frozenset[str] = frozenset()
    costs: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, cluster: Cluster, jobs: Sequence[JobState], *others: Any, **more: Any) -> State:
        """A state of these jobs, checked; the other arguments are the class's.

        Raises:
            ValueError: two jobs of one name, a running job that is not unfinished, or a device held twice or not there.
        """
        by_name = {job.name: job for job in jobs}
        if len(by_name) < len(jobs):
            name, times = Counter(job.name for job in jobs).most_common(1)[0]
            raise ValueError(f"job names must differ, but {name!r} occurs {times} times")
        state = cls(cluster, by_name, *others, **more)
        _check_devices(state.running, by_name, cluster.size, "running")
        return state

    @cached_property
    def jobs(self) -> tuple[JobState, ...]:
        """The unfinished jobs."""
        return tuple(self.by_name.values())

    @property
    def staying(self) -> dict[str, tuple[int, ...]]:
        """The running jobs that have lost no device, in the order of the jobs."""
        running, lost = self.running, self.unavailable
        staying = {name: running[name] for name in self.by_name if name in running}
        return {name: held for name, held in staying.items() if lost.isdisjoint(held)} if lost else staying

    @property
    def waiting(self) -> list[JobState]:
        """The jobs that hold no device, in their order."""
        return [job for name, job in self.by_name.items() if name not in self.running]

    @property
    def free(self) -> list[int]:
        """Devices that nobody holds and that are available, ascending."""
        return self.free_devices().devices()

    def free_devices(self) -> FreeDevices:
        """The same, to take from."""
        if self.books is not None:
            return self.books.copy()
        free = FreeDevices(self.cluster)
        free.remove(self.unavailable.union(*self.running.values()))
        return free

    @property
    def capacity(self) -> int:
        """How many devices there are, less those that are unavailable."""
        return self.cluster.size - len(self.unavailable)

    def is_new(self, job: JobState) -> bool:
        """Whether the job asks for a promise, and nothing has been decided on it yet."""
        return not job.admitted and job.deadline < math.inf and job.name not in self.promises

    @property
    def available(self) -> list[int]:
        """Devices that can be given once they are free, ascending."""
        return [device for device in range(self.cluster.size) if device not in self.unavailable]


def validate(allocation: Allocation, state: State) -> None:
    """Check that `allocation` can be carried out once the jobs that it stops have left their devices.

    What a job holds already is not looked at again, beyond that nobody else is given it.

    Raises:
        ValueError: a job that is unknown, has no device, fewer than its minimum or more than its limit, or devices of
            several kinds although its bits hold for one; a device that is given twice, not there or unavailable.
    """
    given = [*chain.from_iterable(allocation.values())]
    changed = {name: devices for name, devices in allocation.items() if state.running.get(name) != devices}
    _check_devices(
        changed if len({*given}) == len(given) else allocation, state.by_name, state.cluster.size, "allocated"
    )
    for name, devices in changed.items():
        limit = state.by_name[name].limit
        if len(devices) > limit:
            raise ValueError(f"job {name} is given {len(devices)} devices, but can use at most {limit}")
        least = state.by_name[name].minimum_devices
        if len(devices) < least:
            raise ValueError(f"job {name} is given {len(devices)} devices, but runs on {least} at least")
        kinds = {state.cluster.kind_of(device) for device in devices} if state.cluster.kinds else set()
        if len(kinds) > 1 and not state.by_name[name].mixed_kinds:
            raise ValueError(f"job {name} is given {' and '.join(sorted(kinds))}, but its bits hold for one kind alone")
    for device in state.unavailable.intersection(given):
        name = next(name for name, devices in allocation.items() if device in devices)
        raise ValueError(f"job {name} is given device {device}, which is unavailable")


def _check_devices(held: Allocation, names: Container[str], size: int, what: str) -> None:
    owner: dict[int, str] = {}
    for name, devices in held.items():
        if name not in names:
            raise ValueError(f"job {name} is {what}, but is not among the unfinished jobs")
        if not devices:
            raise ValueError(f"job {name} is {what} without a device; leave it out instead")
        for device in devices:
            if not 0 <= device < size:
                raise ValueError(f"job {name} has device {device}, but the cluster's are 0 .. {size - 1}")
            if device in owner:
                raise ValueError(f"device {device} serves at most one job, but {owner[device]} and {name} have it")
            owner[device] = name
