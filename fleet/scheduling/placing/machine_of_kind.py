"""A machine of several kinds of device, taken apart into one for each kind, and plans put together again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.state import Allocation, State
from fleet.scheduling.placing.homes import curve_on


@dataclass(frozen=True)
class MachineOfKind:
    """The devices of one kind.

    Attributes:
        kind: theirs.
        devices: their numbers in the whole cluster, ascending: device d here is devices[d] there.
        cluster: they alone, all alike.
    """

    kind: str
    devices: tuple[int, ...]
    cluster: Cluster

    def state(self, whole: State, homes: Mapping[str, str], changed: tuple[str, ...], memo: Any) -> State:
        """What a policy sees that knows of these devices alone, and of the jobs at home there."""
        here = {device: number for number, device in enumerate(self.devices)}
        jobs = {name: self._job(job, here) for name, job in whole.by_name.items() if homes[name] == self.kind}
        promises = {name: whole.promises[name] for name in jobs if name in whole.promises}
        kept = {name: promise.inner for name, promise in promises.items() if promise.kind == self.kind}
        return State(
            self.cluster, jobs, _renumbered(whole.running, here, jobs), _renumbered(whole.formed, here),
            frozenset(here[device] for device in whole.unavailable if device in here),
            seed=whole.seed, time=whole.time, changed=changed, memo=memo,
            promises={name: inner for name, inner in kept.items() if inner is not None}, margin=whole.margin,
            refined=whole.refined.intersection(jobs),
            costs={"": whole.costs[self.kind]} if self.kind in whole.costs else {},
        )  # fmt: skip

    def back(self, allocation: Allocation) -> dict[str, tuple[int, ...]]:
        """An allocation of these devices, by their numbers in the whole cluster."""
        return {job: tuple(self.devices[device] for device in devices) for job, devices in allocation.items()}

    def _job(self, job: JobState, here: Mapping[int, int]) -> JobState:
        ranged = job.scaling if job.batches is not None else None
        last = tuple(here[device] for device in job.last if device in here)
        return job.changed(rate=curve_on(job, self.kind), scaling=ranged, kind="", last=last)


def machines_of(cluster: Cluster) -> list[MachineOfKind]:
    """The machine of each kind, in the order of the nodes."""
    found = []
    for kind in cluster.counts():
        nodes = [node for node, each in enumerate(cluster.kinds) if each == kind]
        devices = tuple(device for node in nodes for device in cluster.devices_of(node))
        found.append(MachineOfKind(kind, devices, Cluster(tuple(cluster.devices_per_node[node] for node in nodes))))
    return found


@dataclass(frozen=True)
class AtHome:
    """What a job was promised, and on which kind of device; inner: None: nothing but that."""

    kind: str
    inner: Any = None


def as_one_plan(machines: Sequence[MachineOfKind], states: Sequence[State], plans: Sequence[Plan], memo: Any) -> Plan:
    """One plan for all machines; memo: what the next plan wants to see."""
    allocation: dict[str, tuple[int, ...]] = {}
    stopped: list[str] = []
    for machine, state, plan in zip(machines, states, plans):
        allocation.update(machine.back(plan.allocation))
        stopped += plan.stopped if plan.others_go_on else [job for job in state.running if job not in plan.allocation]
    return Plan(
        allocation,
        others_go_on=True,
        stopped=tuple(stopped),
        lanes=_lanes(states, plans),
        batches=_union([plan.batches for plan in plans]),
        admitted=tuple(job for plan in plans for job in plan.admitted),
        dropped=_union([plan.dropped for plan in plans]),
        undecided=_union([plan.undecided for plan in plans]),
        late=_union([plan.late for plan in plans]),
        windows=tuple(window for plan in plans for window in plan.windows),
        promoted=tuple(job for plan in plans for job in plan.promoted),
        wake=min((plan.wake for plan in plans), default=math.inf),
        bound=_last([plan.bound for plan, state in zip(plans, states) if state.by_name]),
        end=_last([plan.end for plan, state in zip(plans, states) if state.by_name]),
        memo=memo,
        promises=_promises(machines, plans),
    )


def _renumbered(held: Allocation, here: Mapping[int, int], jobs: Mapping[str, Any] | None = None) -> Allocation:
    """What is held on these devices, by their numbers here."""
    found = {}
    for job, devices in held.items():
        numbers = tuple(here[device] for device in devices if device in here)
        if numbers and (jobs is None or job in jobs):
            found[job] = numbers
    return found


def _lanes(states: Sequence[State], plans: Sequence[Plan]) -> dict[str, int]:
    """The lanes of all machines: jobs that begin on different ones never read together, as the slow would hold up the
    fast.
    """
    lanes = {}
    for index, (state, plan) in enumerate(zip(states, plans)):
        for job, devices in plan.allocation.items():
            if job in plan.lanes or (index and state.running.get(job) != devices):
                lanes[job] = plan.lanes.get(job, 0) * len(plans) + index
    return lanes


def _union(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: value for part in parts for key, value in part.items()}


def _last(ends: Sequence[float | None]) -> float | None:
    """When the last machine is done; None where one does not say."""
    known = [end for end in ends if end is not None]
    return max(known) if known and len(known) == len(ends) else None


def _promises(machines: Sequence[MachineOfKind], plans: Sequence[Plan]) -> dict[str, AtHome]:
    """Each job that was promised anything keeps to the kind of device on which it was."""
    found: dict[str, AtHome] = {}
    for machine, plan in zip(machines, plans):
        found.update({job: AtHome(machine.kind) for job in plan.admitted})
        found.update({job: AtHome(machine.kind, inner) for job, inner in plan.promises.items()})
    return found
