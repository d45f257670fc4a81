"""A policy on devices with prices: kinds that cost more than they bring are left alone for as long as they do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.policy import Policy
from fleet.scheduling.model.prices import Prices
from fleet.scheduling.model.state import State
from fleet.scheduling.placing.homes import curve_on
from fleet.scheduling.policies.kind_by_kind import for_kinds
from fleet.scheduling.policies.wrapped_policy import WrappedPolicy


class _Memo(NamedTuple):
    shut: frozenset[int]
    costs: Mapping[str, float]
    inner: object


class WithinPrices(WrappedPolicy):
    """Takes and drops kinds of device as their prices change (spot pricing: Saxena et al., 2020, section VII).

    An hour of a device is worth `Prices.worth` where a job trains fastest, and less on a kind on which jobs are
    slower, in proportion; the mean over the unfinished jobs counts. A kind whose price exceeds that is not there for
    the policy: jobs leave it, go where their bits allow, or wait until the price falls. The policy is asked anew at
    each change of a price. Where no price changes any more and all kinds are too dear, jobs are dropped.

    What devices cost in units of what they bring is told to the policy as `State.costs`.

    Args:
        policy: for all kinds of the cluster.
        prices: with a finite worth.
    """

    def __init__(self, policy: Policy, prices: Prices) -> None:
        super().__init__(policy)
        self._prices = prices

    def plan(self, state: State) -> Plan:
        """As `Policy.plan`."""
        costs = self._costs(state)
        shut = frozenset(
            device for device in range(state.cluster.size) if costs[state.cluster.kind_of(device)] > 1
        ) - frozenset(state.unavailable)
        known = state.memo if isinstance(state.memo, _Memo) else None
        kept = known.inner if known is not None and (known.shut, known.costs) == (shut, costs) else None
        change = self._prices.next_change(state.time)
        if len(shut) == state.capacity:
            return self._pause(state, costs, change, _Memo(shut, costs, None))
        seen = replace(state, costs=costs, memo=kept)
        if shut:
            seen = replace(seen, unavailable=state.unavailable | shut, books=None)
        plan = self._policy.plan(seen)
        plan = replace(plan, stopped=(*plan.stopped, *_driven_out(plan, state, shut)))
        dropped = dict(plan.dropped)
        if shut and change == math.inf and not plan.whole_of(state.running):
            dropped |= self._hopeless(state, costs)
        return replace(plan, dropped=dropped, wake=min(plan.wake, change), memo=_Memo(shut, costs, plan.memo))

    def _costs(self, state: State) -> dict[str, float]:
        """Kind -> what a device of it costs, in units of what it brings; 1: as much."""
        kinds = list(state.cluster.counts())
        speeds = _speeds(state, kinds)
        return {kind: self._prices.at(kind, state.time) / (self._prices.worth * speeds[kind]) for kind in kinds}

    def _pause(self, state: State, costs: Mapping[str, float], change: float, memo: _Memo) -> Plan:
        """Nobody trains until a price falls; if none changes any more, nobody who waits ever will."""
        dropped = self._hopeless(state, costs) if change == math.inf else {}
        return Plan(dropped=dropped, wake=change, memo=memo)

    def _hopeless(self, state: State, costs: Mapping[str, float]) -> dict[str, str]:
        """Why those who wait will never train."""
        told = ", ".join(f"{kind or 'devices'} {cost:.2f} times" for kind, cost in costs.items() if cost > 1)
        why = f"devices cost more than they are worth ({told}), and no price changes any more"
        return {job.name: why for job in state.waiting}


def driven(policy: Policy, cluster: Cluster, prices: Prices | None) -> Policy:
    """The policy as a driver asks it on such a cluster, kind by kind and within the prices where that is needed."""
    whole = for_kinds(policy, cluster)
    return whole if prices is None or not prices.by_kind or prices.worth == math.inf else WithinPrices(whole, prices)


def _speeds(state: State, kinds: list[str]) -> dict[str, float]:
    """Kind -> how fast jobs are on one device of it, the mean of shares of each job's fastest kind."""
    if len(kinds) == 1 or not state.by_name:
        return dict.fromkeys(kinds, 1.0)
    sums = dict.fromkeys(kinds, 0.0)
    for job in state.by_name.values():
        rates = {kind: curve_on(job, kind)(1) for kind in kinds}
        fastest = max(rates.values())
        for kind, rate in rates.items():
            sums[kind] += rate / fastest
    return {kind: total / len(state.by_name) for kind, total in sums.items()}


def _driven_out(plan: Plan, state: State, shut: frozenset[int]) -> list[str]:
    """Jobs on devices that are too dear, which the plan neither moves nor stops."""
    if not plan.others_go_on:
        return []
    held = ((job, devices) for job, devices in state.running.items() if not shut.isdisjoint(devices))
    return [job for job, _ in held if job not in plan.allocation and job not in plan.stopped]
