"""Gandiva: nodes with an affinity for one size of job, shared by time slicing (Xiao et al., OSDI'18)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import ClassVar

from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, Policy, State, check_flag, check_period
from fleet.scheduling.policies.fifo import too_large


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


@dataclass(frozen=True)
class Gandiva(Policy):
    """A node serves jobs of one size; where these are too many they take turns.

    A new job goes to a node of its affinity that has room, else to a free node, else it waits for its turn on the least
    loaded of its affinity (4.2, Algorithm 1). A job that has run for a quantum is suspended for the longest waiting one
    (4.1). Each size has nodes in proportion to the devices that its jobs ask for (4.3, grow-shrink), at least one.

    What needs measured interference is left out: packing of several jobs on one device, and migration to better ones. A
    job that asks for more than the cluster has is dropped.

    Args:
        quantum: seconds that a job runs before it is suspended for another one.
        literal: as the simulator of Tiresias' and ElasticFlow's authors has it, whose figures are published as
            Gandiva's: a size with s devices too many gives back ceil(s / size) nodes, where s / (devices of a node)
            would be right; it does not grow until new jobs come; and jobs stay where they were suspended.

    Raises:
        ValueError: a quantum that is not above 0.
    """

    name: ClassVar[str] = "gandiva"
    keeps_minimum: ClassVar[bool] = True

    quantum: float = 60.0
    literal: bool = True

    def __post_init__(self) -> None:
        check_period("quantum", self.quantum)
        check_flag("literal", self.literal)

    def plan(self, state: State) -> Plan:
        """Everybody who has a turn, and when the next turn begins."""
        size, sets = state.cluster.size, NodeSets(state)
        line = state.waiting
        waiting = [job for job in line if job.gang <= size]
        dropped = too_large(line, state.cluster)
        waiting += sets.astray + self._adjust(state, sets, waiting)
        for job in sorted(waiting, key=lambda job: (job.since, job.name)):
            self._enter(job, sets)
        wakes = [self._take_turns(found, state) for of_size in sets.of.values() for found in of_size]
        return Plan(sets.place(), dropped=dropped, wake=min(wakes, default=math.inf))

    def _adjust(self, state: State, sets: NodeSets, waiting: list[JobState]) -> list[JobState]:
        """Make each size's nodes fit what it asks for; return the jobs that lose theirs."""
        asked: dict[int, int] = {}
        for job in [*waiting, *(state.by_name[name] for name in state.running)]:
            asked[job.gang] = asked.get(job.gang, 0) + job.gang
        whole, stopped = sum(asked.values()), list[JobState]()
        for gang in sorted(sets.of):
            having, there = sets.occupied(gang), len(sets.of[gang])
            more = min(asked[gang], asked[gang] * len(state.available) // whole) - having
            if more > 0 and not self.literal:
                for _ in range(math.ceil(more * there / having)):
                    sets.grow(gang)
            elif more < 0:
                count = math.ceil(-more / gang) if self.literal else -more * there // having
                stopped += sets.shrink(gang, min(count, there - 1))
        return stopped

    def _enter(self, job: JobState, sets: NodeSets) -> None:
        """Give a job a place: one where it can run at once, if there is one."""
        of_size = sets.of.get(job.gang, [])
        if self.literal and (job.held or job.attained) and of_size:
            found = sets.home(job) or max(of_size, key=NodeSet.load)
        else:
            open_ = [found for found in of_size if not found.full]
            least = min(open_ or of_size, key=NodeSet.load, default=None)
            found_ = least if open_ else sets.grow(job.gang) or least
            if found_ is None:
                return
            found = found_
        (found.suspended if found.full else found.jobs).append(job)

    def _take_turns(self, found: NodeSet, state: State) -> float:
        """Who has run for a quantum makes place for who waits; return when the next one will have."""
        if not found.suspended:
            return math.inf
        runs = sorted((job for job in found.jobs if job.name in state.running), key=lambda job: (job.since, job.name))
        for job, next_ in zip(runs, found.suspended):
            if job.since + self.quantum > state.time:
                return job.since + self.quantum
            found.jobs[found.jobs.index(job)] = next_
        return state.time + self.quantum
