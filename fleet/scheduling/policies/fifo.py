"""First come, first served, in gangs (the capacity scheduler of YARN, as in EasyScale, SC'23, 5.2)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from fleet.scheduling.model.cluster import Cluster, FreeDevices
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, Policy, State, check_flag


def take_gang(job: JobState, cluster: Cluster, free: FreeDevices) -> tuple[int, ...] | None:
    """Take the job's gang; None, and nothing taken, if that is not free."""
    if not cluster.kinds:
        return free.take(job.gang)
    taken = (free.take(job.gang, kind) for kind in _kinds(job, cluster))
    return next((devices for devices in taken if devices is not None), None)


def hopeless_gang(job: JobState, cluster: Cluster) -> str | None:
    """Why the job's gang can never be free; None if it can."""
    if job.gang > cluster.size:
        return too_large([job], cluster)[job.name]
    if cluster.kinds and not _kinds(job, cluster):
        there = ", ".join(f"{count} {kind}" for kind, count in cluster.counts().items())
        return f"it asks for {job.gang} devices of one kind{f', {job.kind}' * bool(job.kind)}; the cluster has {there}"
    return None


def too_large(jobs: Iterable[JobState], cluster: Cluster) -> dict[str, str]:
    """The jobs whose gang is larger than the cluster, and what to say of them."""
    size = cluster.size
    return {job.name: f"it asks for {job.gang} devices; the cluster has {size}" for job in jobs if job.gang > size}


def _kinds(job: JobState, cluster: Cluster) -> list[str]:
    """The kinds that may hold the gang, one at a time: that which it prefers, or any if the cluster has none of that.

    An empty one stands for all together: for a job on several kinds that no single one can hold.
    """
    counts = cluster.counts()
    wanted = [job.kind] if job.kind in counts else list(counts)
    return [kind for kind in wanted if counts[kind] >= job.gang] or ([""] if job.mixed_kinds else [])


Key = Callable[[JobState], Any]


def by_arrival(job: JobState) -> tuple[float, str]:
    """The order of first come, first served."""
    return job.arrival, job.name


class WaitingLine:
    """The waiting jobs by a key that does not change while they wait; a policy's memo.

    Args:
        key: the smaller goes first; it must differ between any two jobs.
    """

    def __init__(self, key: Key) -> None:
        self._key = key
        self._heap: list[tuple[Any, str]] = []

    @classmethod
    def of(cls, state: State, key: Key = by_arrival) -> WaitingLine:
        """The line of the last plan with the changes since, or a new one."""
        line = state.memo if isinstance(state.memo, cls) else None
        if line is None:
            line = cls(key)
            names: Any = state.by_name
        else:
            names = state.changed
        for name in names:
            if name in state.by_name and name not in state.running:
                heapq.heappush(line._heap, (key(state.by_name[name]), name))
        return line

    def take(self, state: State) -> Iterator[JobState]:
        """The jobs in order; each leaves the line as it is given. A policy that passes one over puts it back."""
        while self._heap:
            _, name = heapq.heappop(self._heap)
            if name in state.by_name and name not in state.running:
                yield state.by_name[name]

    def back(self, job: JobState) -> None:
        """A job waits on."""
        heapq.heappush(self._heap, (self._key(job), job.name))


@dataclass(frozen=True)
class Fifo(Policy):
    """Each job gets all devices that it asks for, once those before it have theirs; nobody is stopped.

    All its devices are of one kind: that which it prefers. A job that asks for more than there are is dropped.

    Args:
        backfill: whether a job may go before one that does not fit yet.

    Raises:
        ValueError: a parameter out of its range.
    """

    name: ClassVar[str] = "fifo"
    knows_kinds: ClassVar[bool] = True
    keeps_minimum: ClassVar[bool] = True

    backfill: bool = False

    def __post_init__(self) -> None:
        check_flag("backfill", self.backfill)

    def plan(self, state: State) -> Plan:
        """The first of the line on the devices that are free."""
        free, line = state.free_devices(), WaitingLine.of(state)
        placed: dict[str, tuple[int, ...]] = {}
        dropped: dict[str, str] = {}
        passed: list[JobState] = []
        for job in line.take(state):
            devices = take_gang(job, state.cluster, free)
            if devices is not None:
                placed[job.name] = devices
            elif (reason := hopeless_gang(job, state.cluster)) is not None:
                dropped[job.name] = reason
            else:
                passed.append(job)
                if not (self.backfill and free.count):
                    break
        for job in passed:
            line.back(job)
        return Plan(placed, others_go_on=True, dropped=dropped, memo=line)
