"""A policy beside which trainers without a network prepare samples, so that the networks can be fed faster."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from fleet.scheduling.easyscale.kind_curves import KindCurves
from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.lending import Lending
from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.policy import Policy
from fleet.scheduling.model.state import State
from fleet.scheduling.policies.wrapped_policy import WrappedPolicy


class _Memo(NamedTuple):
    lent: int
    inner: object


class WithLentTrainers(WrappedPolicy):
    """Lets trainers prepare samples that the plan gives no job, where samples come too slowly for some job.

    What the data path feeds hangs on the plan, and the plan on what it feeds: r(m) is cut off at what k trainers and
    all preprocessors make, and more of them let jobs use more devices. So the policy is asked with k, and its plan
    counts if it leaves k devices alone. The largest such k is found by bisection: the more trainers are counted, the
    more devices the policy gives away, and the fewer are left. k = 0 always fits.

    States have the rates with `Lending.most` trainers, and `JobState.fed` without any; the policy sees both with k.

    Args:
        policy: for the jobs.
        lending: how many trainers may prepare.
    """

    def __init__(self, policy: Policy, lending: Lending) -> None:
        super().__init__(policy)
        self._lending = lending

    def plan(self, state: State) -> Plan:
        """As `Policy.plan`."""
        most = min(self._lending.most, state.capacity - 1) if _is_held_up(state) else 0
        found = self._plan(state, max(most, 0))
        if found is not None:
            return found
        least, under, over = self._with(state, 0), 0, most
        while over - under > 1:
            between = (under + over) // 2
            plan = self._plan(state, between)
            if plan is None:
                over = between
            else:
                least, under = plan, between
        return least

    def _plan(self, state: State, lent: int) -> Plan | None:
        """The plan if so many trainers prepare; None: it leaves fewer alone."""
        plan = self._with(state, lent)
        taken = sum(map(len, plan.whole_of(state.staying).values()))
        return plan if not lent or state.capacity - taken >= lent else None

    def _with(self, state: State, lent: int) -> Plan:
        known = state.memo if isinstance(state.memo, _Memo) else None
        memo = known.inner if known is not None and known.lent == lent else None
        by_name = {name: _fed(job, self._lending.times(lent)) for name, job in state.by_name.items()}
        plan = self._policy.plan(replace(state, by_name=by_name, memo=memo))
        return replace(plan, lent=lent, memo=_Memo(lent, plan.memo))


def with_lent_trainers(policy: Policy, lending: Lending) -> Policy:
    """The policy as a driver asks it that may lend trainers to the data path."""
    return WithLentTrainers(policy, lending) if lending.most else policy


def _is_held_up(state: State) -> bool:
    """Whether a job could train faster on the devices that there are than preprocessors alone feed it."""
    return any(
        job.fed < math.inf and float(job.rate.rates(min(job.limit, max(state.capacity, 1))).max()) > job.fed
        for job in state.by_name.values()
    )


def _fed(job: JobState, times: float) -> JobState:
    """The job if preprocessors made so many times what they make alone."""
    if job.fed == math.inf:
        return job
    scaling, most = job.scaling, job.fed * times
    if isinstance(scaling, KindCurves):
        scaling = scaling.capped(most)
    return job.changed(rate=job.rate.capped(most, job.limit), scaling=scaling, fed=most)
