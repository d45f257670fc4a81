"""A policy beside which jobs train ahead of need: on devices that it leaves, for as long as it leaves them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fleet.scheduling.model.free_devices import FreeDevices
from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.state import Allocation, State
from fleet.scheduling.policies.wrapped_policy import WrappedPolicy


class WhatIsLeft(WrappedPolicy):
    """Gives jobs that train ahead of need as few devices as they run on, of those that the policy gives nobody.

    The policy is not shown these jobs: their devices are free for it, and they leave those that it gives away. Where
    it could as well have given others of the same node, it does.

    Args:
        policy: for all other jobs.
    """

    def plan(self, state: State) -> Plan:
        """As `Policy.plan`."""
        ahead = [job for job in state.by_name.values() if job.ahead]
        if not ahead:
            return self._policy.plan(state)
        seen = _without(state, {job.name for job in ahead})
        plan = _sparing(state, ahead, self._policy.plan(seen), seen.staying)
        taken = {device for devices in plan.whole_of(seen.staying).values() for device in devices}
        given = _given(state, ahead, set(state.available) - taken)
        driven_out = [job.name for job in ahead if job.name in state.running and job.name not in given]
        stopped = (*plan.stopped, *driven_out) if plan.others_go_on else plan.stopped
        return replace(plan, allocation={**plan.allocation, **given}, stopped=stopped)


def _without(state: State, names: set[str]) -> State:
    """The state without some jobs; their devices are free."""
    others = {name: job for name, job in state.by_name.items() if name not in names}
    running = {name: devices for name, devices in state.running.items() if name not in names}
    return replace(state, by_name=others, running=running, books=None)


def _sparing(state: State, ahead: Iterable[JobState], plan: Plan, staying: Allocation) -> Plan:
    """The plan with devices that nobody has in the place of those that jobs train ahead on, where it gives such."""
    held = {device for job in ahead for device in state.running.get(job.name, ())}
    taken = {device for devices in plan.whole_of(staying).values() for device in devices}
    spare, allocation = sorted(set(state.available) - taken - held), dict(plan.allocation)
    for name, devices in plan.allocation.items():
        for device in held.intersection(devices) if name not in state.running else ():
            node = state.cluster.node_of(device)
            instead = next((each for each in spare if state.cluster.node_of(each) == node), None)
            if instead is not None:
                spare.remove(instead)
                allocation[name] = tuple(sorted({*allocation[name], instead} - {device}))
    return replace(plan, allocation=allocation)


def _given(state: State, ahead: Iterable[JobState], free: set[int]) -> Allocation:
    """Who of these has which of the devices that are free: those that run first, where they are if that can be."""
    given: dict[str, tuple[int, ...]] = {}
    ahead = sorted(ahead, key=lambda job: job.name not in state.running)
    left = FreeDevices(state.cluster, free)
    for job in ahead:
        held = state.running.get(job.name)
        if held is not None and free.issuperset(held):
            given[job.name] = held
            left.remove(held)
    for job in ahead:
        if job.name not in given and (devices := _first_fit(state, job, left)) is not None:
            given[job.name] = devices
    return given


def _first_fit(state: State, job: JobState, left: FreeDevices) -> tuple[int, ...] | None:
    """Devices for a job that begins; None: there are none of one kind."""
    kinds = dict.fromkeys(state.cluster.kinds)
    if not kinds or job.mixed_kinds:
        kinds = dict.fromkeys([job.kind if job.kind in kinds else "", ""])
    elif job.kind:
        kinds = dict.fromkeys([job.kind])
    found = (left.take(job.minimum_devices, kind) for kind in kinds)
    return next((devices for devices in found if devices is not None), None)
