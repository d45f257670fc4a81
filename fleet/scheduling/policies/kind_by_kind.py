"""A policy that takes devices to be alike, on a cluster where they are not: it plans for each kind of them alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.policy import Policy
from fleet.scheduling.model.state import State
from fleet.scheduling.placing.homes import Homes
from fleet.scheduling.placing.machine_of_kind import as_one_plan, machines_of
from fleet.scheduling.policies.wrapped_policy import WrappedPolicy


class _Memo(NamedTuple):
    homes: Mapping[str, str]
    inner: tuple[object, ...]  # by machine


class KindByKind(WrappedPolicy):
    """Gives each job a kind of device as its home (see `Homes`), and asks the policy for each kind's plan in turn.

    A job that the policy drops at home, as one that asks for more devices than there are, is tried on the largest kind.

    Args:
        policy: for devices that are alike.
        cluster: with kinds.
    """

    def __init__(self, policy: Policy, cluster: Cluster) -> None:
        super().__init__(policy)
        self._machines = machines_of(cluster)

    def plan(self, state: State) -> Plan:
        """As `Policy.plan`."""
        fixed = {name: promise.kind for name, promise in state.promises.items()}
        plan, homes = self._planned(state, fixed)
        largest = max(self._machines, key=lambda machine: machine.cluster.size).kind
        dropped = [state.by_name[name] for name in plan.dropped if homes[name] != largest]
        again = {job.name: largest for job in dropped if job.mixed_kinds or not job.kind}
        # What was remembered may have been changed in place by the plan that is given up.
        return self._planned(replace(state, memo=None), {**fixed, **again})[0] if again else plan

    def _planned(self, state: State, fixed: Mapping[str, str]) -> tuple[Plan, Mapping[str, str]]:
        memo = state.memo if isinstance(state.memo, _Memo) else _Memo({}, (None,) * len(self._machines))
        homes = Homes(state, fixed).of
        moved = tuple(name for name, kind in homes.items() if memo.homes.get(name, kind) != kind)
        changed = (*state.changed, *moved)
        states = [one.state(state, homes, changed, kept) for one, kept in zip(self._machines, memo.inner)]
        plans = [self._policy.plan(each) if each.by_name else Plan() for each in states]
        plan = as_one_plan(self._machines, states, plans, _Memo(homes, tuple(each.memo for each in plans)))
        return _with_movers_stopped(plan, state, homes), homes


def _with_movers_stopped(plan: Plan, state: State, homes: Mapping[str, str]) -> Plan:
    """A job that leaves its kind of device stops, even if it gets none of the other kind yet."""
    kind_of = state.cluster.kind_of
    movers = {name for name, devices in state.running.items() if name in homes and homes[name] != kind_of(devices[0])}
    stopped = movers.difference(plan.allocation, plan.stopped)
    return replace(plan, stopped=(*plan.stopped, *sorted(stopped))) if stopped else plan


def for_kinds(policy: Policy, cluster: Cluster) -> Policy:
    """The policy itself where it knows kinds of device or all are alike, else one that plans kind by kind."""
    return KindByKind(policy, cluster) if cluster.kinds and not policy.knows_kinds else policy
