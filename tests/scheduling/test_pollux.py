"""Pollux: the power mean of speedups."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers.pollux import GoodputModel, Tuned
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import State, validate
from fleet.scheduling.model.rates import RateCurve
from fleet.spec.policies import policy


def job(name: str, *rates: float, **more: object) -> JobState:
    curve = RateCurve(dict(enumerate(rates, 1)), per_node=4, limit=len(rates))
    return JobState(name, curve, len(rates), remaining=100.0, **more)  # type: ignore[arg-type]


def counts(*jobs: JobState, devices: int = 4, now: float = 0.0, **running: tuple[int, ...]) -> dict[str, int]:
    plan = policy("pollux").plan(State.of(Cluster((devices,)), jobs, dict(running), time=now))
    return {name: len(held) for name, held in plan.allocation.items()}


def test_jobs_alike_share_alike() -> None:
    jobs = [job(name, 1, 2, 3, 4) for name in "ab"]
    assert counts(*jobs) == {"a": 2, "b": 2}


def test_who_scales_better_gets_more() -> None:
    # Fair shares are 2 each: 1 / (1 / 1.1) + 1 / (3 / 2) = 1.77 beside 1 + 1 = 2.
    assert counts(job("flat", 1, 1.1, 1.15, 1.2), job("steep", 1, 2, 3, 4)) == {"flat": 1, "steep": 3}


def test_nobody_is_left_without_a_device_while_there_are_enough() -> None:
    assert counts(*(job(f"j{i}", 1, 2, 3, 4) for i in range(4))) == dict.fromkeys(("j0", "j1", "j2", "j3"), 1)


def test_a_young_job_does_not_pay_for_a_restart() -> None:
    # (40 - 0 * 30) / (40 + 30) = 0.57 of 2 / 2 is less than 1 / 2 + nothing lost; later it is 0.97.
    young, running = job("a", 1, 1.5, held=1), {"a": (0,)}
    assert counts(young, devices=2, now=40, **running) == {"a": 1}
    assert counts(young, devices=2, now=1000, **running) == {"a": 2}
    often = replace(young, restarts=30)
    assert counts(often, devices=2, now=1000, **running) == {"a": 1}, "it restarted for 900 of its 1,000 s"


class Known:
    """Goodput of a job that doubles with its devices, best at 10 samples for each."""

    def __init__(self, tried: int) -> None:
        self.tried = tried

    def rate(self, devices: int, batch: int | None = None, nodes: int = 1) -> float:
        return float(devices)

    def worker_rate(self, kind: str) -> float:
        return 1.0

    def tuned(self, devices: int, nodes: int) -> Tuned:
        return Tuned(self.rate(devices), 10 * devices)


def test_devices_double_at_most_and_the_batch_follows() -> None:
    assert isinstance(Known(0), GoodputModel)
    for tried, count in ((0, 1), (1, 2), (2, 4), (3, 4)):
        explorer = job("a", 1, 1, 1, 1, scaling=Known(tried), batches=(10, 100), batch=10)
        plan = policy("pollux").plan(State.of(Cluster((4,)), [explorer], time=0.0))
        assert len(plan.allocation["a"]) == count
        assert plan.batches == ({"a": 10 * count} if count > 1 else {})


def test_plans_come_at_intervals() -> None:
    assert policy("pollux", interval=30).trigger.interval == 30
    assert policy("pollux").plan(State.of(Cluster((4,)), [job("a", 1)], time=61.0)).wake == 120


@pytest.mark.parametrize("parameters", [{"interval": 0}, {"power": 0}, {"delay": -1}])
def test_parameters_are_checked(parameters: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="policy pollux: (interval|power|delay) is"):
        policy("pollux", **parameters)


@given(st.lists(st.lists(st.floats(0.5, 20), min_size=1, max_size=4), min_size=1, max_size=4))
@settings(max_examples=50)
def test_no_other_counts_have_a_better_mean(drawn: list[list[float]]) -> None:
    jobs = [job(f"j{index}", *rates) for index, rates in enumerate(drawn)]
    state = State.of(Cluster((4,)), jobs, time=0.0)
    allocation = policy("pollux").plan(state).allocation
    validate(allocation, state)
    fair = -(-4 // len(jobs))

    def loss(chosen: tuple[int, ...]) -> float:
        total = 0.0
        for found, count in zip(jobs, chosen):
            speedup = found.rate(count) / found.rate(min(fair, found.limit)) if count else 0.0
            total += 1 / (speedup + 1e-3)
        return total

    best = min(loss(some) for some in product(*(range(found.limit + 1) for found in jobs)) if sum(some) <= 4)
    assert loss(tuple(len(allocation.get(found.name, ())) for found in jobs)) == pytest.approx(best)
