"""Whoever would end last does not wait for those that end sooner, if nothing else tells them apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState, ServiceLevel
from fleet.scheduling.model.policy import Plan, State, validate
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.policies.wrappers import LeastLaxity
from fleet.spec.policies import policy

TWO = Cluster((2,))
ONE = RateCurve({1: 1.0}, per_node=2)
RUNNING = {"a": (0,), "b": (1,)}


def job(name: str, seconds: float, **more: Any) -> JobState:
    """A job of so many samples that trains one of them in a second."""
    return JobState(name, ONE, 1, remaining=seconds, **more)


def planned(state: State, name: str = "fifo") -> Plan:
    plan = LeastLaxity(policy(name)).plan(state)
    validate(plan.whole_of(state.staying), state)
    return plan


def test_who_can_wait_waits_and_the_policy_is_asked_again_when_it_cannot() -> None:
    jobs = [job("a", 6), job("b", 6), job("c", 6)]  # all can end by 9
    plan = planned(State.of(TWO, jobs, RUNNING, time=10.0, seed=1))
    assert plan.whole_of(RUNNING) == RUNNING and plan.wake == 10.0 + 3


def test_who_cannot_wait_has_the_devices_of_who_can_wait_longest() -> None:
    jobs = [job("a", 3), job("b", 2.5), job("c", 6)]
    plan = planned(State.of(TWO, jobs, RUNNING, time=13.0, seed=1))
    assert plan.whole_of(RUNNING) == {"a": (0,), "c": (1,)} and plan.stopped == ("b",)


def test_a_job_that_the_policy_would_start_waits_in_the_place_of_a_longer_one() -> None:
    jobs = [job("a", 9), job("b", 2), job("c", 12)]
    plan = planned(State.of(TWO, jobs, seed=1))
    assert plan.whole_of({}) == {"a": (0,), "c": (1,)} and plan.stopped == () and plan.memo is None


@pytest.mark.parametrize("more", [{"epoch": 3.0}, {"restart": 4.0}])
def test_a_job_goes_on_that_is_in_its_last_epoch_or_hardly_shorter_than_moving_is_long(more: dict[str, float]) -> None:
    jobs = [job("a", 3, **more), job("b", 2.5, **more), job("c", 6, **more)]
    assert planned(State.of(TWO, jobs, RUNNING, seed=1)).whole_of(RUNNING) == RUNNING


def test_a_job_of_one_epoch_waits_for_its_turn() -> None:
    jobs = [job("a", 9), job("b", 2), job("c", 12, epoch=12.0)]
    assert planned(State.of(TWO, jobs, seed=1)).whole_of({}) == RUNNING


@pytest.mark.parametrize(
    "more", [{"deadline": 90.0}, {"guaranteed": True}, {"service_level": ServiceLevel(0.5, 60.0)}, {"ahead": True}]
)
def test_a_job_with_a_promise_is_left_alone(more: dict[str, Any]) -> None:
    jobs = [job("a", 3, **more), job("b", 2.5, **more), job("c", 6)]
    state = State.of(TWO, jobs, RUNNING, seed=1)
    assert planned(state).whole_of(RUNNING) == RUNNING
    assert planned(replace(state, by_name={each.name: each for each in (job("a", 3), job("b", 2.5), jobs[2])})).stopped


def test_nothing_changes_where_devices_are_of_several_kinds_or_nobody_knows_how_long_a_job_trains() -> None:
    jobs = [job("a", 3), job("b", 2.5), job("c", 6)]
    kinds = Cluster((1, 1), ("fast", "slow"))
    assert planned(State.of(kinds, jobs, RUNNING, seed=1)).whole_of(RUNNING) == RUNNING
    endless = [*jobs[:2], JobState("c", ONE, 1)]
    assert planned(State.of(TWO, endless, RUNNING, seed=1)).whole_of(RUNNING) == RUNNING


def test_of_those_that_are_to_begin_the_first_is_for_whom_others_wait_longest() -> None:
    """Epochs take 1, 2 and 1 seconds, those that follow as long as the longest."""
    jobs = [job("a", 4, epoch=1.0), job("b", 6, epoch=2.0), job("c", 1, epoch=1.0, further=5)]
    assert planned(State.of(Cluster((1,)), jobs, seed=1)).whole_of({}) == {"c": (0,)}
    early = [*jobs[:2], jobs[2].changed(further=4)]  # it takes 9 seconds until all that has ended, and 11 are left
    assert planned(State.of(Cluster((1,)), early, seed=1)).whole_of({}) == {"a": (0,)}


def test_nobody_is_stopped_for_what_may_follow_nor_for_whom_others_wait() -> None:
    jobs = [job("a", 6, epoch=1.0), job("b", 6, epoch=1.0), job("c", 2, epoch=1.0, further=30)]
    assert planned(State.of(TWO, jobs, RUNNING, seed=1)).whole_of(RUNNING) == RUNNING
    jobs = [job("a", 3, epoch=1.0, further=1), job("b", 2.5, epoch=1.0, further=1), job("c", 6, epoch=1.0)]
    assert planned(State.of(TWO, jobs, RUNNING, time=13.0, seed=1)).whole_of(RUNNING) == RUNNING
    jobs[0] = jobs[0].changed(further=0)
    assert planned(State.of(TWO, jobs, RUNNING, time=13.0, seed=1)).stopped == ("a",)
