"""Nodes that serve jobs of one size: Gandiva's affinity (Xiao et al., OSDI'18, 4.2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.state import State


@dataclass(eq=False)
class NodeSet:
    """Nodes of one affinity: one node with room for several jobs, or as many as one larger job takes.

    Attributes:
        nodes: ascending.
        room: how many jobs run there at once.
        jobs: which ones run there.
        suspended: who waits for a turn there, in order.
    """

    nodes: tuple[int, ...]
    room: int
    jobs: list[JobState] = field(default_factory=list)
    suspended: list[JobState] = field(default_factory=list)

    @property
    def full(self) -> bool:
        """Whether nobody else can run there at once."""
        return len(self.jobs) >= self.room

    def load(self) -> tuple[int, tuple[int, ...]]:
        """The least loaded goes first."""
        return len(self.jobs) + len(self.suspended), self.nodes


class NodeSets:
    """The sets of a state by gang, and the nodes of which nobody has any device.

    Args:
        state: whose running jobs make the sets; a node is of the size of the larger of its jobs.
    """

    def __init__(self, state: State) -> None:
        self._cluster, self._state = state.cluster, state
        self._there = list(state.cluster.devices_per_node)
        for device in state.unavailable:
            self._there[state.cluster.node_of(device)] -= 1
        self.of: dict[int, list[NodeSet]] = {}
        self.astray: list[JobState] = []  # they run where they cannot stay, see `_find`
        self._at: dict[int, NodeSet] = {}
        self._of_job: dict[str, NodeSet] = {}
        running = [state.by_name[name] for name in state.running]
        for job in sorted(running, key=lambda job: (-job.gang, job.since, job.name)):
            self._find(job, state.running[job.name])
        self.free = [node for node, there in enumerate(self._there) if there and node not in self._at]

    def occupied(self, gang: int) -> int:
        """Devices of the nodes that serve jobs of that size."""
        return sum(self._devices(found.nodes) for found in self.of.get(gang, ()))

    def home(self, job: JobState) -> NodeSet | None:
        """The set of its size on whose nodes it ran last."""
        found = self._at.get(self._cluster.node_of(job.last[0])) if job.last else None
        return found if found in self.of.get(job.gang, ()) else None

    def grow(self, gang: int) -> NodeSet | None:
        """One more set for jobs of that size, of free nodes; None if these are too few."""
        single = next((node for node in self.free if self._there[node] >= gang), None)
        nodes = [] if single is None else [single]
        for node in sorted(self.free, key=lambda node: (-self._there[node], node)) if single is None else ():
            nodes.append(node)
            if self._devices(nodes) >= gang:
                break
        if self._devices(nodes) < gang:
            return None
        self.free = [node for node in self.free if node not in nodes]
        return self._added(gang, tuple(sorted(nodes)))

    def shrink(self, gang: int, count: int) -> list[JobState]:
        """Take so many sets from jobs of that size, the least loaded ones; return the jobs that ran there."""
        sets = sorted(self.of[gang], key=NodeSet.load)
        self.of[gang] = sets[count:]
        given = [node for found in sets[:count] for node in found.nodes]
        for node in given:
            del self._at[node]
        self.free = sorted([*self.free, *given])
        return [job for found in sets[:count] for job in found.jobs]

    def place(self) -> dict[str, tuple[int, ...]]:
        """Devices for everybody in the sets; who can stay does."""
        placed: dict[str, tuple[int, ...]] = {}
        for sets in self.of.values():
            for found in sets:
                placed |= self._placed(found)
        return placed

    def _placed(self, found: NodeSet) -> dict[str, tuple[int, ...]]:
        running = self._state.running
        staying = {job.name: running[job.name] for job in found.jobs if self._of_job.get(job.name) is found}
        if len(staying) == len(found.jobs):
            return staying
        used = self._state.unavailable.union(*staying.values())
        left = (device for node in found.nodes for device in self._cluster.devices_of(node) if device not in used)
        coming = [job for job in found.jobs if job.name not in staying]
        return staying | {job.name: tuple(islice(left, job.gang)) for job in coming}

    def _find(self, job: JobState, devices: tuple[int, ...]) -> None:
        """Put a running job in the set of its nodes, or make one of them.

        It is astray if these are not of its size, or if it does not hold its gang: a live run shows a device that was
        lost as held until the job's group has ended.
        """
        if len(devices) != job.gang or not self._state.unavailable.isdisjoint(devices):
            self.astray.append(job)
            return
        nodes = self._nodes_of(devices)
        found = next((self._at[node] for node in nodes if node in self._at), None)
        if found is None:
            found = self._added(job.gang, nodes)
        elif found.nodes != nodes or found.full or found not in self.of.get(job.gang, ()):
            self.astray.append(job)
            return
        found.jobs.append(job)
        self._of_job[job.name] = found

    def _added(self, gang: int, nodes: tuple[int, ...]) -> NodeSet:
        found = NodeSet(nodes, max(1, self._devices(nodes) // gang))
        self.of.setdefault(gang, []).append(found)
        self._at |= dict.fromkeys(nodes, found)
        return found

    def _nodes_of(self, devices: tuple[int, ...]) -> tuple[int, ...]:
        node_of = self._cluster.node_of
        first, last = node_of(devices[0]), node_of(devices[-1])
        return (first,) if first == last else tuple(sorted(set(map(node_of, devices))))

    def _devices(self, nodes: Iterable[int]) -> int:
        return sum(self._there[node] for node in nodes)
