"""EasyScale: jobs of a fixed number of virtual workers scale out on whatever is free (Li et al., SC'23, 3.4)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from fleet.scheduling.easyscale.claims import Claims
from fleet.scheduling.easyscale.companions import Rules, executors_on
from fleet.scheduling.easyscale.elastic_round import ElasticRound
from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.policy import Policy
from fleet.scheduling.model.state import State
from fleet.scheduling.placing.accelerators import Accelerators
from fleet.scheduling.policies.checks import check_flag, check_seconds, check_share

_LOOK = 60.0  # seconds after which a change is looked at, where plans have no interval of their own


@dataclass(frozen=True)
class EasyScale(Rules, Policy):
    """Waiting jobs get a device in turn; spare devices go to the proposals that bring most for each device.

    A job has maxP virtual workers (`limit`) on any number of devices from minP on. It proposes to have more of one kind
    (`PlanDatabase`); Algorithm 1 chooses among the proposals (`approved`), again and again until no device is left that
    helps. A running job is scaled in only for one that lacks devices of its service level, and for a guaranteed one,
    which gets its gang in the same plan: the elastic jobs give up the devices that they miss least, and have first call
    on those that guaranteed jobs took for some time. What these leave is filled up again at the next plan.
    A job that turns out slower on more devices than it was goes back to those that it had.

    Args:
        heterogeneous: whether jobs that may (`mixed_kinds`) use devices of several kinds at once. The others stay on
            one kind for good, as their results would change with it: the preferred one.
        min_share: minP as a part of the job's gang; 0: one device will do; 1: gangs.
        top_k: proposals of a job in a round.
        waste: most of its devices' speed that a proposed configuration may lose (Eq. 1d); above 0, at most 1.
        growth: most times its devices that a job gets from one plan; then a plan has one round, as in the authors'
            simulator, where it is 2. 0: as many as help.
        interval: seconds between plans, 60 in the authors' simulator; guaranteed jobs do not wait for it. 0: plan at
            each event.
        executors: the most executors of a job on a device, or kind of device -> the most there, and 1 elsewhere. Where
            trainers share accelerators, each accelerator is one job's then, with as many trainers as are fastest.
        interference: the part of its speed that an executor keeps beside others on its device.
        patience: seconds for which a job has first call on the devices that a guaranteed job took from it, and may wait
            for them; 0: none.
        quota: the part of the devices that guaranteed jobs may hold together by taking some from others (5.3:
            "high-priority with guaranteed quota"); beyond it they wait in line for free ones.
        headroom: the part of the devices of each kind that other jobs leave free for guaranteed ones, which so begin
            without waiting until somebody has left; what guaranteed jobs hold is counted. At most the quota.

    Raises:
        ValueError: a parameter out of its range.
    """

    name: ClassVar[str] = "easyscale"
    knows_kinds: ClassVar[bool] = True
    keeps_minimum: ClassVar[bool] = True
    keeps_service_levels: ClassVar[bool] = True

    interval: float = 0.0

    def __post_init__(self) -> None:
        check_flag("heterogeneous", self.heterogeneous)
        check_share("waste", self.waste)
        check_share("interference", self.interference)
        check_share("quota", self.quota)
        if isinstance(self.headroom, bool) or not 0 <= self.headroom <= self.quota:
            raise ValueError(f"headroom is {self.headroom}; it must be 0 (none) to the quota, {self.quota}")
        if not 0 <= self.min_share <= 1:
            raise ValueError(f"min_share is {self.min_share}; it must be 0 (one device will do) to 1 (gangs)")
        if self.top_k != int(self.top_k) or self.top_k < 1:
            raise ValueError(f"top_k is {self.top_k}; a job makes at least one proposal")
        if self.growth and not 1 < self.growth < math.inf:
            raise ValueError(f"growth is {self.growth}; it must be above 1, such as 2, or 0 for no bound")
        check_seconds("interval", self.interval)
        check_seconds("patience", self.patience)
        each = (
            self.executors
            if isinstance(self.executors, Mapping)
            else {"": 1 if self.executors is None else self.executors}
        )
        for kind, most in each.items():
            if isinstance(most, bool) or most != int(most) or most < 1:
                raise ValueError(f"executors{kind and f' on {kind}'} is {most}; it must be 1 or more")

    @property
    def most_executors(self) -> int:
        """On devices that are alike."""
        return executors_on(self, "")

    def plan(self, state: State) -> Plan:
        """Guaranteed jobs first; then who was faster before, who waits, and who would grow."""
        if not (self.executors and state.cluster.sharing):
            return self._planned(ElasticRound(state, self))
        whole, known = Accelerators(state), any(job.executor_rates for job in state.by_name.values())
        one = ElasticRound(whole.state, self if known else replace(self, executors=None))
        return whole.plan(self._planned(one), one.companions.executors)

    def _planned(self, one: ElasticRound) -> Plan:
        one.place_guaranteed()
        one.serve()
        one.fall_back()
        one.give_back()
        one.start()
        one.grow()
        placed, stopped = one.changes()
        return Plan(
            placed, others_go_on=True, stopped=stopped, dropped=one.dropped, memo=one.companions.memo,
            wake=min(
                self._lapse(one.claims), self._look(one.time) if placed else math.inf,
                one.next_service,
            ),
            promises=one.companions.promises(one.claims.changed, one.windows.changed), windows=tuple(one.windows.over),
        )  # fmt: skip

    def _lapse(self, claims: Claims) -> float:
        """When to see who need not wait any more."""
        return self.trigger.due(claims.next_lapse, 1) if claims.of else math.inf

    def _look(self, time: float) -> float:
        """When to see whether changes have helped, and what else to change."""
        if not self.interval:
            return time + _LOOK
        return self.trigger.next_end(time)
