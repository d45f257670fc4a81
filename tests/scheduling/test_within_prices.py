"""Devices with prices: kinds that cost more than they bring are left alone while they do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster, Course, Prices
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, State, validate
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.policies.wrappers import WithinPrices, driven
from fleet.spec.policies import policy
from tests.scheduling.support.all_policies import NAMES
from tests.scheduling.test_kind_by_kind import CLUSTER, job, states

ALWAYS: Mapping[str, Course] = {"fast": ((0.0, 3.0),), "slow": ((0.0, 0.5),)}
FAST, SLOW = {0, 1, 4}, {2, 3}


def plan_of(name: str, prices: Prices, state: State, **parameters: Any) -> Plan:
    made = driven(policy(name, **parameters), state.cluster, prices)
    assert isinstance(made, WithinPrices)
    plan = made.plan(state)
    validate(plan.whole_of(state.running), state)
    return plan


def used(plan: Plan, state: State) -> set[int]:
    return {device for devices in plan.whole_of(state.running).values() for device in devices}


def test_a_price_is_that_of_its_time() -> None:
    prices = Prices({"a": ((0.0, 1.0), (100.0, 4.0), (300.0, 2.0)), "b": ((0.0, 1.0), (200.0, 0.0))})
    assert [prices.at("a", now) for now in (0, 99, 100, 299, 300, 1e9)] == [1, 1, 4, 4, 2, 2]
    assert prices.at("nobody's", 5) == 0.0
    assert [prices.next_change(now) for now in (0, 100, 250, 300)] == [100, 200, 300, math.inf]


@pytest.mark.parametrize("course", [(), ((1.0, 2.0),), ((0.0, 1.0), (0.0, 2.0)), ((0.0, -1.0),)])
def test_prices_that_no_market_has_are_refused(course: Course) -> None:
    with pytest.raises(ValueError, match="'a'"):
        Prices({"a": course})


@pytest.mark.parametrize("name", NAMES)
def test_a_kind_that_costs_more_than_it_brings_is_left_alone(name: str) -> None:
    """The slow kind is half as fast: at 1 an hour it is dear where the fast one is at 2."""
    state = State.of(CLUSTER, [job(letter) for letter in "abcdef"])
    courses = {"fast": ((0.0, 1.9),), "slow": ((0.0, 1.1), (50.0, 0.9))}
    plan = plan_of(name, Prices(courses, 2.0), state)
    assert used(plan, state) and used(plan, state) <= FAST and plan.wake <= 50.0
    later = plan_of(name, Prices(courses, 2.0), replace(state, time=50.0))
    assert used(later, state) == used(driven(policy(name), CLUSTER, None).plan(state), state)


@settings(max_examples=60)
@given(st.sampled_from(NAMES), states())
def test_whatever_runs_no_policy_uses_a_dear_kind(name: str, state: State) -> None:
    plan = plan_of(name, Prices({"fast": ((0.0, 9.0), (1e6, 0.0)), "slow": ((0.0, 0.0),)}, 1.0), state)
    assert used(plan, state) <= SLOW and plan.wake <= 1e6


def test_jobs_leave_when_a_price_rises_and_return_when_it_falls() -> None:
    alike = Cluster((2,))
    prices = Prices({"": ((0.0, 1.0), (10.0, 5.0), (20.0, 1.0))}, 2.0)
    made = driven(policy("fifo"), alike, prices)
    one = JobState("a", RateCurve({1: 10.0}, 2), 2, remaining=1000.0, epoch=100.0)
    first = made.plan(State.of(alike, [one]))
    assert first.allocation and first.wake == 10.0
    running = State.of(alike, [one], first.allocation, time=10.0, memo=first.memo)
    dear = made.plan(running)
    assert dear.whole_of(running.running) == {} and dear.wake == 20.0 and not dear.dropped
    again = made.plan(State.of(alike, [one], time=20.0, memo=dear.memo))
    assert again.allocation and again.wake == math.inf


def test_who_can_never_pay_is_dropped() -> None:
    state = State.of(CLUSTER, [job("a"), job("b", kind="slow")])
    plan = plan_of("fifo", Prices(ALWAYS, 0.1), state)
    assert not plan.allocation and set(plan.dropped) == {"a", "b"}
    assert "cost more than they are worth" in plan.dropped["a"]
    tied = State.of(CLUSTER, [job("b", kind="slow", last=(2,), attained=1.0)])
    dear_slow = Prices({"fast": ((0.0, 0.0),), "slow": ((0.0, 9.0),)}, 1.0)
    assert set(plan_of("fifo", dear_slow, tied).dropped) == {"b"}, "its bits hold for the slow kind alone"


def test_throughput_gives_no_device_that_brings_less_than_it_costs() -> None:
    alike = Cluster((4,))
    scaling_badly = JobState("a", RateCurve({1: 10.0, 2: 16.0, 3: 19.0, 4: 20.0}, 4), 4, remaining=1e3, epoch=100.0)
    counts = []
    for price in (0.0, 0.2, 0.5, 0.9):
        plan = plan_of("throughput", Prices({"": ((0.0, price),)}, 1.0), State.of(alike, [scaling_badly]))
        counts.append(len(plan.allocation["a"]))
    assert counts == [4, 3, 2, 1]


def test_without_a_worth_prices_only_tell_costs() -> None:
    made = driven(policy("fifo"), Cluster((4,)), Prices({"": ((0.0, 9.0),)}))
    assert not isinstance(made, WithinPrices)
