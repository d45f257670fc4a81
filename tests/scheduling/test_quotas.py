"""What a user may have promised at a time: who is beyond that waits, and others get their promises."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, State
from fleet.scheduling.model.rates import RateCurve
from fleet.spec.policies import policy

NODE = Cluster((4,))
NEEDED = 20.0  # device-seconds of each job below: one device in two slots of 10 s


def job(name: str, user: str, work: float = 10.0, deadline: float = 20.0, **more: Any) -> JobState:
    """A job that trains a sample a second on one device."""
    curve = RateCurve({1: 1.0, 2: 1.5, 4: 2.0}, 4, limit=4)
    return JobState(name, curve, 4, deadline=deadline, remaining=work, tenant=user, **more)


def plan_of(state: State, **quotas: float) -> Plan:
    return policy("elasticflow", slot=10, quotas={**quotas}).plan(state)


def after(plan: Plan, *jobs: JobState, time: float = 0.0, **more: Any) -> State:
    """What the policy sees once its plan was carried out."""
    known = [one.changed(admitted=one.admitted or one.name in plan.admitted) for one in jobs]
    names = {one.name for one in known}
    running = {name: devices for name, devices in plan.allocation.items() if name in names}
    promises = {name: kept for name, kept in plan.promises.items() if name in names}
    return State.of(NODE, known, running, time=time, promises=promises, **more)


def test_a_user_with_many_jobs_leaves_room_for_others() -> None:
    flood = [job(f"flood-{i}", "eve") for i in range(8)]
    other = job("other", "bob")
    assert "other" in plan_of(State.of(NODE, [*flood, other])).dropped, "without a quota they fill the machine"
    plan = plan_of(State.of(NODE, [*flood, other]), eve=2 * NEEDED)
    assert plan.admitted == ("flood-0", "flood-1", "other") and not plan.dropped
    assert set(plan.undecided) == {f"flood-{i}" for i in range(2, 8)}
    assert "as much promised as the quota allows" in plan.undecided["flood-2"]
    assert plan.undecided.keys().isdisjoint(plan.allocation), "they wait"


@pytest.mark.parametrize("remembers", [True, False])
def test_who_waits_is_decided_on_when_earlier_jobs_need_less(remembers: bool) -> None:
    first, second = job("first", "eve"), job("second", "eve", deadline=40.0)
    plan = plan_of(State.of(NODE, [first, second]), eve=NEEDED)
    assert plan.admitted == ("first",) and list(plan.undecided) == ["second"]
    memo = {"memo": plan.memo, "changed": ("first",)} if remembers else {}
    still = plan_of(after(plan, first, second, time=1.0), eve=NEEDED)
    assert list(still.undecided) == ["second"] and not still.dropped
    done = plan_of(after(plan, second, time=12.0, **memo), eve=NEEDED)
    assert done.admitted == ("second",) and not done.undecided


def test_who_waits_too_long_is_dropped_and_a_soft_one_goes_on_without_a_promise() -> None:
    jobs = [job("first", "eve"), job("hard", "eve"), job("soft", "eve", soft=True)]
    plan = plan_of(State.of(NODE, jobs), eve=NEEDED)
    assert list(plan.undecided) == ["hard", "soft"]
    late = plan_of(after(plan, *jobs, time=17.0), eve=NEEDED)
    assert list(late.dropped) == ["hard"] and not late.undecided
    assert "soft" in late.allocation and "soft" not in late.admitted


def test_a_job_that_needs_more_than_the_quota_is_dropped_at_once() -> None:
    plan = plan_of(State.of(NODE, [job("large", "eve"), job("own", "ada")]), **{"*": 15.0, "ada": 1000.0})
    assert plan.admitted == ("own",)
    assert plan.dropped == {"large": "its promise takes 20 device-seconds, and eve may have 15"}


def test_the_authors_program_drops_who_is_beyond() -> None:
    decided = policy("elasticflow-slot", slot=10, quotas={"eve": NEEDED})
    plan = decided.plan(State.of(NODE, [job("first", "eve"), job("second", "eve")]))
    assert plan.admitted == ("first",) and "as much promised" in plan.dropped["second"] and not plan.undecided


@pytest.mark.parametrize("quotas", [{"eve": 0}, {"eve": "much"}, {"eve": True}, 5])
def test_what_is_no_quota(quotas: Any) -> None:
    with pytest.raises(ValueError, match="policy elasticflow: quotas "):
        policy("elasticflow", quotas=quotas)
