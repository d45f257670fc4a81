"""The deadline policy, by hand: who is admitted, who has how many devices, when it wants to be asked again."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, State
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.policies.deadline import FirmShare, share_spare
from fleet.scheduling.reservations.reservation import SpeedLevels, reserved_at
from fleet.spec.policies import policy

LINEAR = RateCurve({count: float(count) for count in range(1, 5)}, 4, limit=4)
CONCAVE = RateCurve({1: 1.0, 2: 1.8, 3: 2.4, 4: 2.8}, 4, limit=4)
FOUR = Cluster((4,))


def job(name: str, samples: float, deadline: float = math.inf, rate: RateCurve = LINEAR, **more: object) -> JobState:
    return JobState(name, rate, 4, deadline=deadline, remaining=samples, **more)  # type: ignore[arg-type]


def planned(*jobs: JobState, cluster: Cluster = FOUR, **more: object) -> Plan:
    return policy("deadline").plan(State.of(cluster, jobs, **more))


def counts(plan: Plan) -> dict[str, int]:
    return {name: len(devices) for name, devices in plan.allocation.items()}


def test_what_is_not_reserved_is_used_all_the_same() -> None:
    plan = planned(job("a", 8.0, 10.0))
    assert plan.admitted == ("a",) and counts(plan) == {"a": 4}
    assert plan.wake == math.inf, "it has all that it could ever want"


def test_the_cheapest_of_those_that_come_together_is_admitted_first() -> None:
    plan = planned(job("large", 30.0, 10.0), job("small", 15.0, 10.0))
    assert plan.admitted == ("small",) and "promised already" in plan.dropped["large"]


def test_a_deadline_that_cannot_be_met_is_refused_at_once() -> None:
    plan = planned(job("late", 41.0, 10.0), job("soft", 41.0, 10.0, soft=True), job("endless", math.inf, 10.0))
    assert set(plan.dropped) == {"late"} and "machine for itself" in plan.dropped["late"]
    assert plan.admitted == () and counts(plan) == {"soft": 4}, "the shortest of those without a promise"
    again = planned(job("soft", 1.0, 10.0, soft=True), promises=plan.promises)
    assert again.admitted == (), "refused once, it runs without a promise"


def test_a_promise_is_kept_against_whoever_comes() -> None:
    first = planned(job("a", 20.0, 10.0))
    kept = job("a", 20.0, 10.0, admitted=True)
    plan = planned(kept, job("b", 21.0, 10.0), promises=first.promises)
    assert plan.admitted == () and set(plan.dropped) == {"b"}
    plan = planned(kept, job("b", 19.0, 10.0), promises=first.promises)
    assert plan.admitted == ("b",) and sum(counts(plan).values()) == 4
    assert all(reserved_at(plan.promises.get(name, first.promises["a"]), 0.0) <= 4 for name in "ab")


def test_jobs_without_deadline_share_what_is_left() -> None:
    plan = planned(job("a", 17.9, 10.0, rate=CONCAVE), job("free", 5.0, rate=CONCAVE), job("more", 9.0, rate=CONCAVE))
    assert plan.admitted == ("a",) and sum(counts(plan).values()) == 4
    assert counts(plan)["free"] == counts(plan)["more"] == 1, "a first device is worth more than a third"


def test_it_wakes_when_more_is_reserved_than_the_job_has() -> None:
    held = {"b": (0, 1, 2)}
    promises = {"a": ((0.0, 2.0, 1), (2.0, 8.0, 3)), "b": ((0.0, 2.0, 3),)}
    now = [job("a", 20.0, 9.0, admitted=True), job("b", 6.0, 2.0, admitted=True, held=3, pace=3.0)]
    plan = planned(*now, running=held, promises=promises)
    assert counts(plan) == {"a": 1, "b": 3} and plan.wake == 2.0
    assert plan.allocation["b"] == (0, 1, 2), "who keeps its number keeps its place"


def test_a_move_that_does_not_pay_is_not_made() -> None:
    levels = SpeedLevels(LINEAR, 4)
    runs = FirmShare("a", levels, reserved=0, held=2, samples=10.0, restart=1.5, worth=1.0)
    assert share_spare([runs], 4) == {"a": 2}  # 5 s on two devices, 2.5 s on four: 2.5 s are less than twice 1.5 s
    assert share_spare([replace(runs, restart=1.0)], 4) == {"a": 4}
    waits = replace(runs, name="b", held=0)
    assert share_spare([runs, waits], 4) == {"a": 2, "b": 2}


def test_lost_devices_cost_the_latest_deadline_its_promise() -> None:
    jobs = [job("a", 12.0, 10.0, admitted=True), job("b", 20.0, 11.0, admitted=True)]
    promises = {"a": ((0.0, 6.0, 2),), "b": ((0.0, 10.0, 2),)}
    plan = planned(*jobs, promises=promises, unavailable=frozenset({0, 1}))
    assert sum(counts(plan).values()) == 2 and set(plan.promises) == {"a"}


def test_bad_parameters_are_named() -> None:
    with pytest.raises(ValueError, match="interval is -1"):
        policy("deadline", interval=-1)
