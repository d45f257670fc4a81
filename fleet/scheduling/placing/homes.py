"""A machine of several kinds of device taken apart into one for each: who is at home where, and one plan of all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState, Scaling
from fleet.scheduling.model.policy import Allocation, Plan, State
from fleet.scheduling.model.rates import RateCurve

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
            self.cluster,
            jobs,
            _renumbered(whole.running, here, jobs),
            _renumbered(whole.formed, here),
            frozenset(here[device] for device in whole.unavailable if device in here),
            seed=whole.seed,
            time=whole.time,
            changed=changed,
            memo=memo,
            promises={name: inner for name, inner in kept.items() if inner is not None},
            margin=whole.margin,
            refined=whole.refined.intersection(jobs),
            costs={"": whole.costs[self.kind]} if self.kind in whole.costs else {},
        )

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
