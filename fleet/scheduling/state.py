"""What a policy is told, and what it answers."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from fleet.scheduling.rates import RateCurve

Allocation = Mapping[str, tuple[int, ...]]
"""Job -> the devices that it should have from now on, ascending; the first is the group's master."""


@dataclass(frozen=True)
class Cluster:
    """The devices of a machine, numbered 0 .. M-1 node by node.

    Raises:
        ValueError: no node, or a node without a device.
    """

    devices_per_node: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices_per_node", tuple(self.devices_per_node))
        if not self.devices_per_node or min(self.devices_per_node) < 1:
            raise ValueError(
                f"devices_per_node is {self.devices_per_node}; name at least one node, each with one device or more"
            )

    @property
    def size(self) -> int:
        """M, the number of devices."""
        return self._ends[-1]

    def node_of(self, device: int) -> int:
        """The node that holds `device`."""
        if not 0 <= device < self.size:
            raise ValueError(f"device {device} is not among the cluster's 0 .. {self.size - 1}")
        return bisect_right(self._ends, device)

    def devices_of(self, node: int) -> range:
        """The devices of `node`."""
        return range(self._ends[node] - self.devices_per_node[node], self._ends[node])

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        return tuple(accumulate(self.devices_per_node))


@dataclass(frozen=True)
class JobState:
    """One unfinished job.

    Attributes:
        name: unique in the ensemble.
        rate: r(m), samples/s on m devices.
        limit: most devices that it can use: its virtual workers.
        epochs: epochs finished so far.
        stream: sharing class; jobs with the same one read the same samples next, and pace each other.
        mixed_kinds: whether its devices may be of different kinds.
    """

    name: str
    rate: RateCurve
    limit: int
    epochs: int = 0
    stream: str = ""
    mixed_kinds: bool = False

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ValueError(f"job {self.name}: limit is {self.limit}; a job can use at least one device")


@dataclass(frozen=True)
class State:
    """The whole of what a policy may know.

    Attributes:
        jobs: the unfinished ones, in spec order.
        running: job -> devices that it holds now, also while it has been asked to stop.
        formed: the allocation with which the current round began; may name jobs that are finished by now.
        unavailable: devices that nobody can be given.
        seed: root of every random draw.
        time: seconds since the run began.

    Raises:
        ValueError: two jobs of one name, a running job that is not unfinished, or a device held twice or not there.
    """

    cluster: Cluster
    jobs: tuple[JobState, ...]
    running: Allocation = field(default_factory=dict)
    formed: Allocation = field(default_factory=dict)
    unavailable: frozenset[int] = frozenset()
    seed: int = 0
    time: float = 0.0

    def __post_init__(self) -> None:
        names = {job.name for job in self.jobs}
        if len(names) < len(self.jobs):
            name, times = Counter(job.name for job in self.jobs).most_common(1)[0]
            raise ValueError(f"job names must differ, but {name!r} occurs {times} times")
        _check_devices(self.running, names, self.cluster.size, "running")

    @property
    def staying(self) -> dict[str, tuple[int, ...]]:
        """The running jobs that have lost no device, in spec order."""
        held = ((job.name, self.running.get(job.name, ())) for job in self.jobs)
        return {name: devices for name, devices in held if devices and self.unavailable.isdisjoint(devices)}

    @property
    def waiting(self) -> list[JobState]:
        """The jobs that hold no device, in spec order."""
        return [job for job in self.jobs if job.name not in self.running]

    @property
    def free(self) -> list[int]:
        """Devices that nobody holds and that are available, ascending."""
        taken = self.unavailable.union(*self.running.values())
        return [device for device in range(self.cluster.size) if device not in taken]

    @property
    def available(self) -> list[int]:
        """Devices that can be given once they are free, ascending."""
        return [device for device in range(self.cluster.size) if device not in self.unavailable]


def validate(allocation: Allocation, state: State) -> None:
    """Check that `allocation` can be carried out once the jobs that it stops have left their devices.

    Raises:
        ValueError: a job that is unknown, has no device or more than its limit; a device that is given twice, not there
            or unavailable.
    """
    limits = {job.name: job.limit for job in state.jobs}
    _check_devices(allocation, limits, state.cluster.size, "allocated")
    for name, devices in allocation.items():
        if len(devices) > limits[name]:
            raise ValueError(f"job {name} is given {len(devices)} devices, but can use at most {limits[name]}")
        lost = state.unavailable.intersection(devices)
        if lost:
            raise ValueError(f"job {name} is given device {min(lost)}, which is unavailable")


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
