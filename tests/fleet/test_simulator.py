"""The coordinator over a predicted machine: small cases by hand, and properties."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.model.state import Cluster
from fleet.scheduling.policies import policy
from fleet.simulator import Prediction, SimulatedJob, predict

POLICIES = ("flotilla", "local", "homogeneous", "baseline")


def run(
    name: str, jobs: dict[str, tuple[float, int]], devices: tuple[int, ...], limit: int = 4, seed: int = 0
) -> Prediction:
    """Jobs are (samples/s on one device, epochs) with 100 samples an epoch."""
    simulated = {job: SimulatedJob("one", 100, epochs) for job, (_, epochs) in jobs.items()}
    curves = {job: RateCurve({1: rate}, per_node=devices[0], workers=limit) for job, (rate, _) in jobs.items()}
    return predict(policy(name), Cluster(devices), simulated, curves, dict.fromkeys(jobs, limit), seed)


def test_one_job_on_one_device() -> None:
    assert run("flotilla", {"a": (10.0, 3)}, (1,)).seconds == pytest.approx(30.0)


def test_baseline_keeps_every_device_busy() -> None:
    # Four equal jobs of 10 s on two devices.
    prediction = run("baseline", dict.fromkeys("abcd", (10.0, 1)), (2,))
    assert prediction.seconds == pytest.approx(20.0)
    assert prediction.computing == pytest.approx({0: 20.0, 1: 20.0})


def test_homogeneous_waits_for_the_slowest_of_each_subset() -> None:
    # Shared samples: all go at the pace of the slowest, 5 samples/s.
    prediction = run("homogeneous", {"slow": (5.0, 1), "fast": (50.0, 1)}, (2,))
    assert prediction.seconds == pytest.approx(20.0)


def test_flotilla_gives_the_slow_job_more_devices() -> None:
    # 10 samples/s against 40: the slow one needs several devices to keep the pace.
    prediction = run("flotilla", {"slow": (10.0, 1), "fast": (40.0, 1)}, (5,))
    first = prediction.rounds[0].allocation
    assert len(first["slow"]) == 4 and len(first["fast"]) == 1


@settings(deadline=None, max_examples=40)
@given(
    jobs=st.dictionaries(st.sampled_from("abcdefgh"), st.tuples(st.floats(1, 100), st.integers(1, 5)), min_size=1),
    devices=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    name=st.sampled_from(POLICIES),
)
def test_every_job_is_finished_and_no_time_is_made_up(
    jobs: dict[str, tuple[float, int]], devices: list[int], name: str
) -> None:
    prediction = run(name, jobs, tuple(devices))
    served = {job for round_ in prediction.rounds for job in round_.allocation}
    assert served == set(jobs)
    at_best = max(100 * epochs / (rate * 4) for rate, epochs in jobs.values())  # never more than four devices
    assert prediction.seconds >= at_best - 1e-6
    assert run(name, jobs, tuple(devices)).seconds == prediction.seconds
