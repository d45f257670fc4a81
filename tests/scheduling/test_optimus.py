"""Optimus: devices by what they save."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import State, validate
from fleet.scheduling.model.rates import RateCurve
from fleet.spec.policies import policy


def job(name: str, remaining: float, *rates: float, arrival: float = 0.0) -> JobState:
    curve = RateCurve(dict(enumerate(rates, 1)), per_node=4, limit=len(rates))
    return JobState(name, curve, len(rates), remaining=remaining, arrival=arrival)


def counts(*jobs: JobState, devices: int = 4, running: dict[str, tuple[int, ...]] | None = None) -> dict[str, int]:
    state = State.of(Cluster((devices,)), jobs, running or {}, time=0.0)
    return {name: len(held) for name, held in policy("optimus").plan(state).allocation.items()}


def test_the_job_that_saves_more_seconds_gets_the_next_device() -> None:
    # 100 / 1 - 100 / 2 = 50 and 100 / 2 - 100 / 3 = 16.7 beside 40 / 1 - 40 / 2 = 20
    long, short = job("long", 100, 1, 2, 3, 4), job("short", 40, 1, 2, 3, 4)
    assert counts(long, short, devices=3) == {"long": 2, "short": 1}
    assert counts(long, short, devices=4) == {"long": 2, "short": 2}


def test_a_step_over_a_plateau_counts_by_its_devices() -> None:
    flat, steady = job("flat", 100, 1, 1, 4), job("steady", 100, 1, 1.5, 2.0)
    # flat: (100 - 25) / 2 = 37.5 for each of two; steady: 100 - 66.7 = 33.3
    assert counts(flat, steady, devices=4) == {"flat": 3, "steady": 1}
    assert counts(flat, steady, devices=3) == {"flat": 1, "steady": 2}, "two do not fit, so one goes elsewhere"


def test_no_device_that_slows_a_job_down() -> None:
    assert counts(job("peaks", 100, 1, 1.8, 1.5, 1.4)) == {"peaks": 2}


def test_each_gets_one_first_the_shortest_before_others() -> None:
    jobs = [job(f"j{seconds}", seconds, 1, 2) for seconds in (50, 10, 30)]
    assert counts(*jobs, devices=2) == {"j10": 1, "j30": 1}


def test_who_keeps_his_number_stays_and_plans_come_at_intervals() -> None:
    jobs = [job("a", 100, 1, 2), job("b", 100, 1, 2)]
    state = State.of(Cluster((4,)), jobs, {"b": (1, 3)}, time=700.0)
    plan = policy("optimus").plan(state)
    assert plan.allocation == {"b": (1, 3), "a": (0, 2)} and plan.wake == 1200
    assert policy("optimus").trigger.interval == 600


@pytest.mark.parametrize("parameters", [{"interval": 0}, {"mean_epochs": -1}])
def test_parameters_are_checked(parameters: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="policy optimus: (interval|mean_epochs) is"):
        policy("optimus", **parameters)


@given(st.lists(st.tuples(st.floats(1, 1e6), st.lists(st.floats(0.5, 20), min_size=1, max_size=6)), max_size=12))
def test_no_device_is_idle_that_would_save_time(drawn: list[tuple[float, list[float]]]) -> None:
    jobs = [job(f"j{index}", remaining, *rates) for index, (remaining, rates) in enumerate(drawn)]
    state = State.of(Cluster((8,)), jobs, time=0.0)
    allocation = policy("optimus").plan(state).allocation
    validate(allocation, state)
    left = 8 - sum(map(len, allocation.values()))
    for found in jobs:
        useful = found.rate.useful(found.limit)[0].tolist()
        held = len(allocation.get(found.name, ()))
        assert held in (0, *useful)
        assert all(count <= held or count - held > left for count in useful)
