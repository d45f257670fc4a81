"""What ends of epochs take, as policies hear of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from fleet.coordination.job_table import StopTime, with_ends_of_epochs
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import State
from fleet.scheduling.model.rates import RateCurve
from fleet.spec.policies import policy

EPOCH = 100.0  # samples; 10 s on one device


def job(name: str, data: str = "digits", deadline: float = 100.0) -> JobState:
    return JobState(name, RateCurve({1: 10.0}, 1), 1, data=data, epoch=EPOCH, remaining=3 * EPOCH, deadline=deadline)


def with_ends(jobs: Sequence[JobState], times: StopTime) -> list[JobState]:
    dated = [job.name for job in jobs if job.deadline < math.inf]
    return list(with_ends_of_epochs({job.name: job for job in jobs}, dated, times).values())


def ends(times: StopTime, *jobs: JobState) -> list[float]:
    """What an end of each job's epochs is thought to take."""
    return [round(EPOCH / found.rate(1) - 10, 6) for found in with_ends(jobs, times)]


def test_an_end_takes_what_evaluation_and_checkpoint_take_in_the_mean() -> None:
    times = StopTime()
    times.saved("a", 2.0)
    times.saved("a", 1.0)
    assert times.epoch_end("a") is None and times.saving["a"] == 2.0
    times.ended_epoch("a", -3.0)
    assert times.epoch_end("a") == pytest.approx(1.7), "a mean, in which the last one counts; it began in its midst"
    times.ended_epoch("a", 1.0)
    assert times.epoch_end("a") == pytest.approx(2.0)


def test_a_job_that_has_ended_no_epoch_takes_what_others_of_its_data_take() -> None:
    times = StopTime(beside={"a": 1.0, "b": 3.0, "c": 9.0})
    known = (job("a"), job("b"), job("c", "words"))
    assert ends(times, *known) == [1.0, 3.0, 9.0]
    assert ends(times, *known, job("new"), job("other", "sounds")) == [1.0, 3.0, 9.0, 2.0, 3.0]
    assert ends(StopTime(), job("new")) == [0.0]


def test_jobs_without_a_deadline_are_left_alone() -> None:
    free, due = job("a", deadline=math.inf), job("b")
    found = with_ends((free, due), StopTime(beside={"a": 1.0, "b": 2.0}))
    assert found[0] is free and found[1].rate(1) == pytest.approx(EPOCH / 12)


def test_a_job_trains_on_as_fast_as_its_rate_says() -> None:
    held = replace(job("a"), held=1, pace=10.0)
    (found,) = with_ends([held], StopTime(beside={"a": 2.0}))
    assert found.pace == pytest.approx(found.rate(1))
    (again,) = with_ends([held], StopTime(beside={"a": 2.0}))
    assert again.rate is found.rate, "policies know a curve by its identity"


@pytest.mark.parametrize("name", ["deadline", "elasticflow"])
def test_promises_know_of_the_ends_of_epochs(name: str) -> None:
    """Three epochs of 10 s, and three ends."""

    def promised(deadline: float, closing: float) -> bool:
        jobs = with_ends([job("a", deadline=deadline)], StopTime(beside={"a": closing} if closing else {}))
        return policy(name).plan(State.of(Cluster((1,)), jobs)).admitted == ("a",)

    assert promised(31.0, 0.0) and promised(37.0, 2.0) and not promised(35.0, 2.0)
