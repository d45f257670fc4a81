"""Deadlines under `goodput`: who is promised one, what is reserved for it, and what the others have."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, State, validate
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.placing.homes import AtHome
from fleet.scheduling.variable_batch.priced_choices import NONE, best_choices
from fleet.spec.policies import policy

LINEAR = RateCurve({1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0}, 4, limit=8)
CONCAVE = RateCurve({1: 1.0, 2: 2.0, 4: 2.5}, 4, limit=4)
FOUR, MIXED = Cluster((4,)), Cluster((4, 4), ("fast", "slow"))


@dataclass(frozen=True)
class ByKind:
    """One device of `slow` has a part of the speed of one of `fast`."""

    slow: float = 0.5

    def rate(self, devices: int, batch: int | None = None, nodes: int = 1) -> float:
        return LINEAR(devices)

    def worker_rate(self, kind: str) -> float:
        return self.curve_on(kind)(1)

    def curve_on(self, kind: str) -> RateCurve:
        return LINEAR.scaled(self.slow) if kind == "slow" else LINEAR


def job(name: str, samples: float, deadline: float = math.inf, rate: RateCurve = LINEAR, **more: object) -> JobState:
    return JobState(name, rate, 4, deadline=deadline, remaining=samples, **more)  # type: ignore[arg-type]


def planned(*jobs: JobState, cluster: Cluster = FOUR, **more: object) -> Plan:
    state = State.of(cluster, jobs, **more)
    plan = policy("goodput").plan(state)
    validate(plan.allocation, state)
    return plan


def counts(plan: Plan) -> dict[str, int]:
    return {name: len(devices) for name, devices in plan.allocation.items()}


def test_a_promised_job_has_what_it_needs_and_the_others_the_rest() -> None:
    others = [job(name, 1.0) for name in "xyz"]
    plan = planned(job("due", 20.0, 10.1, CONCAVE), *others)
    assert plan.admitted == ("due",) and counts(plan)["due"] == 2, "two devices for all of the time"
    assert sum(counts(plan).values()) == 4, "further ones help the others more"


def test_without_others_it_has_all_that_helps_it() -> None:
    plan = planned(job("due", 20.0, 10.1))
    assert plan.admitted == ("due",) and counts(plan) == {"due": 4}


def test_who_could_not_be_in_time_is_dropped_or_trains_without_a_promise() -> None:
    plan = planned(job("late", 41.0, 10.0), job("soft", 41.0, 10.0, soft=True), job("endless", math.inf, 10.0))
    assert set(plan.dropped) == {"late"} and "its deadline, 10 s, cannot be met even with" in plan.dropped["late"]
    assert plan.admitted == () and "soft" in counts(plan) and "late" not in counts(plan)
    again = planned(job("soft", 1.0, 10.0, soft=True), promises=plan.promises)
    assert again.admitted == (), "it was decided on"


def test_nobody_is_promised_what_others_were() -> None:
    first = planned(job("a", 20.0, 10.1))
    kept = job("a", 20.0, 10.1, admitted=True)
    beside = planned(kept, job("b", 21.0, 10.1), promises=first.promises)
    assert beside.admitted == () and "beside the deadlines that are promised already" in beside.dropped["b"]
    plan = planned(kept, job("b", 19.0, 10.1), promises=first.promises)
    assert plan.admitted == ("b",) and counts(plan) == {"a": 2, "b": 2}


def test_all_jobs_dropped_leave_an_empty_plan() -> None:
    assert planned(job("late", 41.0, 10.0)).allocation == {}


def test_the_other_kind_serves_where_one_is_full() -> None:
    jobs = [job(name, 39.0, 10.1, scaling=ByKind(), mixed_kinds=True) for name in "ab"]
    plan = planned(*jobs, cluster=MIXED)
    assert len(plan.admitted) == 1 and len(plan.dropped) == 1, "slow devices are too slow for this one"
    kept = job("a", 39.0, 10.1, scaling=ByKind(), mixed_kinds=True, admitted=True)
    small = job("b", 19.0, 10.1, scaling=ByKind(), mixed_kinds=True)
    first = {"a": AtHome("fast", ((0.0, 9.8, 4),))}
    plan = planned(kept, small, cluster=MIXED, promises=first)
    assert plan.admitted == ("b",) and plan.promises["b"].kind == "slow" and plan.late == {}
    assert {MIXED.kind_of(devices[0]) for devices in plan.allocation.values()} == {"fast", "slow"}


def test_a_promise_that_cannot_be_kept_is_told_with_its_earliest_end() -> None:
    broken = job("due", 50.0, 10.0, admitted=True)
    plan = planned(broken, promises={"due": AtHome("", ((0.0, 10.0, 4),))})
    assert plan.late == {"due": 12.5} and counts(plan) == {"due": 4}
    lost = planned(job("due", 30.0, 10.0, admitted=True), promises=plan.promises, unavailable=frozenset({0, 1}))
    assert lost.late == {"due": 15.0} and counts(lost) == {"due": 2}


def test_a_deadline_that_has_passed_is_not_promised_again_whatever_is_left() -> None:
    plan = planned(job("due", 0.0, 10.0, admitted=True), promises={"due": AtHome("", ((0.0, 10.0, 4),))}, time=11.0)
    assert set(plan.late) == {"due"}


def test_it_plans_anew_when_more_is_reserved_than_the_job_has() -> None:
    due = job("due", 9.0, 10.0, RateCurve({1: 1.0, 2: 1.2}, 4), admitted=True)
    promises = {"due": AtHome("", ((0.0, 4.0, 1), (4.0, 8.5, 2)))}
    crowd = [job(f"other-{number}", 1.0, rate=RateCurve({1: 1.0}, 4, limit=1)) for number in range(3)]
    plan = planned(due, *crowd, promises=promises)
    assert counts(plan)["due"] == 1 and plan.wake == 4.0


def test_a_job_that_could_not_move_back_in_time_has_what_is_reserved() -> None:
    held = {"due": (0, 1), "other": (2, 3)}
    due = job("due", 19.0, 10.0, admitted=True, held=2, pace=2.0, restart=4.0)
    plan = planned(due, job("other", 1e4, restart=4.0, held=2), running=held, time=0.0)
    assert plan.late == {} and plan.allocation["due"] == (0, 1), "to stop and come back would cost the deadline"


@pytest.mark.parametrize("seed", range(20))
def test_what_is_sure_is_had_whatever_others_would_pay(seed: int) -> None:
    draw = np.random.default_rng(seed)
    devices, kinds, capacity = np.array([1, 2, 4, 1, 2]), np.array([0, 0, 0, 1, 1]), np.array([4, 2])
    worth = draw.uniform(0.1, 3.0, (6, 5))
    least = np.full(6, NONE)
    least[:2] = 1, 3  # two devices of the first kind, and one of the second
    worth[0, [0, 3, 4]], worth[1, :3] = -np.inf, -np.inf
    held = draw.integers(NONE, 5, 6)
    found = best_choices(worth, np.zeros(6), devices, kinds, capacity, held, least)
    assert found.chosen[0] in (1, 2) and found.chosen[1] in (3, 4)
    used = np.bincount(kinds[found.chosen[found.chosen >= 0]], devices[found.chosen[found.chosen >= 0]], 2)
    assert (used <= capacity).all() and found.worth <= found.bound + 1e-9
