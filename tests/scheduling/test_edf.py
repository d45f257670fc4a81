"""Earliest deadline first, its projection, and leases, by hand."""

from __future__ import annotations

import math

import pytest

from benchmarks.papers.edf import Projection, ScaleOut
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, State
from fleet.scheduling.model.rates import RateCurve
from fleet.spec.policies import policy

PEAKED = RateCurve({1: 1.0, 2: 2.0, 3: 1.5, 4: 1.2, 5: 1.2, 6: 1.2, 7: 1.2, 8: 1.2}, 4, limit=8)
LINEAR = RateCurve({count: float(count) for count in range(1, 9)}, 4, limit=8)


def job(name: str, samples: float, deadline: float = math.inf, rate: RateCurve = LINEAR, **more: object) -> JobState:
    return JobState(name, rate, 8, deadline=deadline, remaining=samples, **more)  # type: ignore[arg-type]


def planned(name: str, *jobs: JobState, size: int = 8, **parameters: object) -> Plan:
    return policy(name, **parameters).plan(State.of(Cluster((size,)), jobs))


def counts(plan: Plan) -> dict[str, int]:
    return {name: len(devices) for name, devices in plan.allocation.items()}


def test_as_many_as_were_measured_or_as_make_it_faster() -> None:
    peaked = job("a", 1.0, 5.0, PEAKED)
    assert ScaleOut().most(peaked, 8) == 4, "from 4 on the curve is flat: nothing was measured beyond"
    assert ScaleOut(stop_at_peak=True).most(peaked, 8) == 2
    assert ScaleOut(stop_at_peak=True).most(peaked, 1) == 1


def test_the_nearest_deadline_takes_all_that_it_can() -> None:
    jobs = job("free", 1.0), job("b", 1.0, 9.0), job("a", 1.0, 5.0, PEAKED)
    assert counts(planned("edf", *jobs)) == {"a": 4, "b": 4}
    assert counts(planned("edf", *jobs, stop_at_peak=True)) == {"a": 2, "b": 4, "free": 2}
    assert counts(planned("edf", *jobs, stop_at_peak=True, elastic=False)) == {"a": 2}, "b waits, and all behind it"


def test_the_projection_is_what_then_happens() -> None:
    projection = Projection(0.0, 8, ScaleOut())
    assert projection.add(job("a", 8.0, 5.0, PEAKED)) == pytest.approx(8 / 1.2)
    # 4 devices until a is done, then all 8: 40 = 4 * 6.67 + 8 * 1.67.
    assert projection.add(job("b", 40.0, 9.0)) == pytest.approx(8 / 1.2 + (40 - 4 * 8 / 1.2) / 8)
    in_slots = Projection(0.0, 8, ScaleOut(), interval=10.0)
    in_slots.add(job("a", 8.0, 5.0, PEAKED))
    assert in_slots.add(job("b", 48.0, 9.0)) == pytest.approx(11.0), "what a leaves is given at 10 s"
    assert Projection(0.0, 8, ScaleOut()).add(job("a", 8.0, 5.0, restart=2.0)) == pytest.approx(3.0)
    running = job("a", 8.0, 5.0, restart=2.0, held=8, pace=8.0)
    assert Projection(0.0, 8, ScaleOut()).add(running) == pytest.approx(1.0)


def test_a_newcomer_that_would_make_another_late_is_refused() -> None:
    promised = job("a", 40.0, 6.0, admitted=True)
    plan = planned("edf-admission", promised, job("b", 12.0, 4.0), job("c", 8.0, 6.1), job("d", 8.0, 3.0, soft=True))
    assert plan.admitted == ("c",) and set(plan.dropped) == {"b"} and set(plan.promises) == {"d"}
    assert counts(plan) == {"a": 8}
    assert planned("edf-admission", promised, job("b", 7.9, 4.0)).admitted == ("b",)


def test_leases_by_hand() -> None:
    jobs = (
        job("a", 40.0, 20.1, gang=4),  # one lease of 10 s
        job("b", 80.0, 20.1, gang=4),  # two leases
        job("c", 79.0, 20.1, gang=8),  # one, of all devices: b has four of them in both
        job("d", 39.0, 20.1, gang=4),  # the second, beside b
        job("free", 1.0, gang=2),
    )
    plan = planned("chronus", *jobs, lease=10)
    assert set(plan.admitted) == {"a", "b", "d"} and set(plan.dropped) == {"c"}
    assert counts(plan) == {"a": 4, "b": 4}
    assert counts(planned("chronus", jobs[1], jobs[4], lease=10)) == {"b": 4, "free": 2}


def test_gangs_that_are_too_large_are_told_so() -> None:
    plan = planned("chronus", job("a", 1.0, gang=9), job("b", 1.0, 5.0, gang=9))
    assert "asks for 9 devices" in plan.dropped["a"] and "leases" in plan.dropped["b"]


@pytest.mark.parametrize("name", ["edf", "edf-admission", "chronus"])
def test_bad_parameters_are_named(name: str) -> None:
    parameter = "lease" if name == "chronus" else "interval"
    with pytest.raises(ValueError, match=f"{parameter} is -1"):
        policy(name, **{parameter: -1})
    with pytest.raises(ValueError, match="lease is 0"):
        policy("chronus", lease=0)
