"""Gandiva: nodes with an affinity for one size of job, shared by time slicing (Xiao et al., OSDI'18)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.state import State
from fleet.scheduling.placing.node_sets import NodeSet, NodeSets
from fleet.scheduling.policies.checks import check_flag, check_period
from fleet.scheduling.policies.usual_policy import UsualPolicy
from fleet.scheduling.queues.gang import too_large


@dataclass(frozen=True)
class Gandiva(UsualPolicy):
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
