"""Malleable: worked by hand, and what every plan keeps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, State, validate
from fleet.scheduling.policies.malleable import water_fill
from fleet.spec.policies import policy
from tests.scheduling.support.printed import job
from tests.scheduling.support.strategies import states

LINEAR = (10, 20, 30, 40)


def planned(state: State, **parameters: float) -> Plan:
    plan = policy("malleable", **parameters).plan(state)
    validate(plan.whole_of(state.running), state)
    return plan


def counts(plan: Plan) -> dict[str, int]:
    return {name: len(devices) for name, devices in plan.allocation.items()}


def running(name: str, samples: float, devices: int, *rates: float, restart: float = 0.0) -> JobState:
    member = job(name, *rates)
    return member.changed(remaining=samples, restart=restart, held=devices, pace=member.rate(devices))


def test_longer_jobs_get_more_devices_and_the_bound_is_told() -> None:
    jobs = (job("a", *LINEAR).changed(remaining=100.0), job("b", *LINEAR).changed(remaining=300.0))
    plan = planned(State.of(Cluster((4,)), jobs, time=7.0))
    assert counts(plan) == {"a": 1, "b": 3}
    assert plan.bound == pytest.approx(17) and plan.end == pytest.approx(17) and plan.gap == pytest.approx(0)


def test_who_is_longest_goes_first_where_there_are_too_few_devices() -> None:
    jobs = tuple(job(name, 10).changed(remaining=left) for name, left in (("a", 10.0), ("b", 90.0), ("c", 50.0)))
    plan = planned(State.of(Cluster((2,)), jobs))
    assert set(plan.allocation) == {"b", "c"} and plan.bound == pytest.approx(9)


def test_a_job_keeps_its_devices_while_its_share_is_near_them() -> None:
    jobs = (running("a", 150.0, 1, *LINEAR), running("b", 250.0, 3, *LINEAR))
    plan = planned(State.of(Cluster((4,)), jobs, {"a": (0,), "b": (1, 2, 3)}))
    assert not plan.allocation and not plan.stopped and plan.others_go_on


def test_freed_devices_go_to_who_is_farthest_behind() -> None:
    jobs = (running("a", 100.0, 1, *LINEAR), running("b", 300.0, 1, *LINEAR))
    plan = planned(State.of(Cluster((4,)), jobs, {"a": (0,), "b": (1,)}))
    assert counts(plan) == {"b": 3} and 1 in plan.allocation["b"]


def test_a_move_that_takes_longer_than_it_saves_is_left() -> None:
    jobs = (running("a", 100.0, 1, *LINEAR, restart=5.0), running("b", 190.0, 1, *LINEAR, restart=5.0))
    assert not planned(State.of(Cluster((4,)), jobs, {"a": (0,), "b": (1,)})).allocation


def test_devices_of_who_is_ahead_go_to_who_is_behind() -> None:
    jobs = (running("ahead", 10.0, 3, *LINEAR), running("behind", 390.0, 1, *LINEAR))
    plan = planned(State.of(Cluster((4,)), jobs, {"ahead": (0, 1, 2), "behind": (3,)}))
    assert counts(plan)["behind"] == 3 and len(plan.whole_of({"ahead": (0, 1, 2)})["ahead"]) == 1


def test_nobody_and_nothing() -> None:
    assert planned(State.of(Cluster((4,)), ())).allocation == {}
    nothing = State.of(Cluster((1,)), (job("a", 10),), unavailable=frozenset({0}))
    assert planned(nothing).allocation == {}


@given(states(), st.sampled_from([None, 12.0]))
def test_plans_are_valid_and_never_end_before_their_bound(state: State, mean_epochs: float | None) -> None:
    plan = policy("malleable", mean_epochs=mean_epochs).plan(state)
    validate(plan.whole_of(state.running), state)
    assume(plan.bound is not None and plan.end is not None)
    assert plan.bound is not None and plan.end is not None
    assert state.time <= plan.bound <= plan.end * (1 + 1e-9)
    assert plan.wake > state.time


@given(states(), st.lists(st.floats(1, 1e5), min_size=12, max_size=12))
def test_the_blind_answer_the_same_whatever_is_left(state: State, left: list[float]) -> None:
    others = tuple(member.changed(remaining=samples) for member, samples in zip(state.jobs, left))
    shown = State.of(state.cluster, others, state.running, state.formed, state.unavailable, state.seed)
    hidden = State.of(state.cluster, state.jobs, state.running, state.formed, state.unavailable, state.seed)
    for name in ("malleable", "sharing"):
        chosen = policy(name, mean_epochs=9.0)
        assert chosen.plan(shown).allocation == chosen.plan(hidden).allocation


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "many", True])
def test_other_means_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="policy malleable: mean_epochs is .* must be a number of epochs above 0"):
        policy("malleable", mean_epochs=value)


def test_water_filling_is_the_bound() -> None:
    jobs = (job("a", 10, 16, 18).changed(remaining=100.0), job("b", 7, 9).changed(remaining=30.0))
    found = water_fill(jobs, np.array([100.0, 30.0]), 3).seconds
    assert planned(State.of(Cluster((3,)), jobs)).bound == pytest.approx(found)
