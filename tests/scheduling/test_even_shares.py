"""Even shares of the devices, and what `goodput` makes of jobs that will be done later than on theirs."""

from __future__ import annotations

import numpy as np
import pytest

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import State
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.variable_batch.kind_goodput import EvenShares
from fleet.spec.policies import policy

CURVE = RateCurve({1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0}, 8)


def job(name: str, limit: int = 8, arrival: float = 0.0) -> JobState:
    return JobState(name, CURVE, limit, arrival=arrival, remaining=100.0, restart=10.0)


def test_a_job_alone_has_all_devices_up_to_its_limit() -> None:
    shares, jobs = EvenShares(), [job("free"), job("narrow", limit=2)]
    for one, seconds in zip(jobs, (12.5, 50.0)):
        shares.see([one], 0.0)
        assert shares.seconds([one], np.array([100.0]), 8).tolist() == [seconds]


def test_those_count_that_were_there_in_the_mean() -> None:
    shares, first, second = EvenShares(), job("first"), job("second")
    shares.see([first, second], 0.0)
    assert shares.seconds([first, second], np.array([100.0, 100.0]), 8).tolist() == [25.0, 25.0]
    shares.see([first], 100.0)
    shares.see([first], 200.0)
    assert shares.seconds([first], np.array([100.0]), 8).tolist() == [pytest.approx(100 / CURVE(5))]


def test_who_has_just_come_shares_with_those_that_are_there() -> None:
    shares, first, second = EvenShares(), job("first"), job("second")
    shares.see([first], 0.0)
    shares.see([first, second], 100.0)
    assert shares.seconds([first, second], np.array([80.0, 80.0]), 8).tolist() == [10.0, 20.0]


def test_one_device_is_the_least() -> None:
    shares, jobs = EvenShares(), [job(str(number)) for number in range(20)]
    shares.see(jobs, 0.0)
    assert shares.seconds(jobs, np.full(20, 100.0), 8).tolist() == [100.0] * 20


def test_of_two_jobs_alike_that_goes_first_which_will_be_late_by_its_even_share() -> None:
    jobs = [job("young", arrival=1000.0), job("old", arrival=0.0)]
    told = policy("goodput", known=True).plan(State.of(Cluster((1,)), jobs, time=1000.0))
    assert set(told.allocation) == {"old"}
