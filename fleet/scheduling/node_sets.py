"""Nodes that serve jobs of one size: Gandiva's affinity (Xiao et al., OSDI'18, 4.2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from fleet.scheduling.job_state import JobState
from fleet.scheduling.state import State


@dataclass(eq=False)
class NodeSet:
    """Nodes of one affinity: one node with room for several jobs, or as many as one larger job takes.

    Attributes:
        nodes: ascending.
        room: how many jobs run there at once.
        jobs: that run there.
        suspended: that wait for their turn there, in order.
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
        state: whose running jobs make the sets; a node that serves two sizes is of the larger one's.
    """

    def __init__(self, state: State) -> None:
        self._cluster, self._state = state.cluster, state
        self.of: dict[int, list[NodeSet]] = {}
        self._at: dict[int, NodeSet] = {}
        running = [state.by_name[name] for name in state.running]
        running.sort(key=lambda job: (-job.gang, job.since, job.name))
        for job in running:
            nodes = self._nodes_of(state.running[job.name])
            found = next((self._at[node] for node in nodes if node in self._at), None)
            (found or self._added(job.gang, nodes)).jobs.append(job)
        lost = {state.cluster.node_of(device) for device in state.unavailable}
        self.free = [node for node in range(state.cluster.nodes) if node not in self._at and node not in lost]

    def occupied(self, gang: int) -> int:
        """Devices of the nodes that serve jobs of that size."""
        return sum(self._devices(found.nodes) for found in self.of.get(gang, ()))

    def home(self, job: JobState) -> NodeSet | None:
        """The set of its size on whose nodes it ran last."""
        found = self._at.get(self._cluster.node_of(job.last[0])) if job.last else None
        return found if found in self.of.get(job.gang, ()) else None

    def grow(self, gang: int) -> NodeSet | None:
        """One more set for jobs of that size, of free nodes; None if these are too few."""
        single = next((node for node in self.free if self._cluster.devices_per_node[node] >= gang), None)
        nodes = [] if single is None else [single]
        for node in self.free if single is None else ():
            nodes.append(node)
            if self._devices(nodes) >= gang:
                break
        if self._devices(nodes) < gang:
            return None
        self.free = [node for node in self.free if node not in nodes]
        return self._added(gang, tuple(nodes))

    def shrink(self, gang: int, count: int) -> list[JobState]:
        """So many sets fewer for jobs of that size, the least loaded; return the jobs that ran there."""
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
        nodes = {*found.nodes}
        held = {job.name: self._state.running.get(job.name, ()) for job in found.jobs}
        staying = {name: devices for name, devices in held.items() if devices and nodes >= {*self._nodes_of(devices)}}
        if len(staying) == len(found.jobs):
            return staying
        used = self._state.unavailable.union(*staying.values())
        left = (device for node in found.nodes for device in self._cluster.devices_of(node) if device not in used)
        coming = [job for job in found.jobs if job.name not in staying]
        return staying | {job.name: tuple(islice(left, job.gang)) for job in coming}

    def _added(self, gang: int, nodes: tuple[int, ...]) -> NodeSet:
        found = NodeSet(nodes, max(1, self._devices(nodes) // gang))
        self.of.setdefault(gang, []).append(found)
        self._at |= dict.fromkeys(nodes, found)
        return found

    def _nodes_of(self, devices: Iterable[int]) -> tuple[int, ...]:
        return tuple(sorted({self._cluster.node_of(device) for device in devices}))

    def _devices(self, nodes: Iterable[int]) -> int:
        return sum(self._cluster.devices_per_node[node] for node in nodes)
