"""Batches that policies want: how near a single change may bring a job to them, and when the rest follows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from fleet.coordination.coordinator import BatchRequests
from fleet.coordination.executor import GroupEnded
from fleet.coordination.job_record import JobRecord
from fleet.coordination.live_state import LiveState, Recorder
from fleet.journal.journal import Journal
from fleet.scheduling.model.batch_scaling import BatchRange
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.spec.digest import results_mapping
from fleet.spec.job import ChangingBatch
from tests.session.conftest import a_spec
from trainers.task.batch_plan import BatchSchedule

WORKERS = 2


class Machine:
    """Notes who is asked to leave at the end of its epoch; of the outside, it takes the news."""

    def __init__(self) -> None:
        self.leaving: list[str] = []

    def stop(self, job: str, why: str) -> None:
        assert why == "epoch"
        self.leaving.append(job)

    def tell_batch(self, job: str) -> None: ...


def record(own: int, growth: float) -> JobRecord:
    state = JobState("a", RateCurve({1: 14.0}, per_node=2), WORKERS, batch=own, remaining=3000, epoch=100)
    schedule = BatchSchedule(own // WORKERS, "keep", 0.0, 100)
    return replace(JobRecord.of(state, "data/0", BatchRange(2, 200, WORKERS), schedule), growth=growth)


def batches_until(own: int, wanted: int, growth: float) -> list[int]:
    """The batches of the epochs in which the job comes to the one that is wanted."""
    ledger, machine = LiveState(Cluster((2,)), [record(own, growth)], seed=0), Machine()
    outside: Any = machine
    wishes = BatchRequests(outside, Recorder(ledger, Journal(None, lambda: 0.0)), outside)
    seen, due = [], {"a": wanted}
    for epoch in range(1, 20):
        wishes.settle(["a"], due)
        seen.append(ledger.jobs["a"].step_samples)
        wishes.started("a")
        if len(machine.leaving) < epoch:
            break
        ended = GroupEnded("a", (0,), "stopped", "epoch", epoch, 0)
        due = dict(wishes.due(ended))
        ledger.jobs["a"] = ledger.jobs["a"].at(epoch, 0, 0.0)
    return seen


@pytest.mark.parametrize(
    "own, wanted, growth, batches",
    [
        (8, 64, math.inf, [64]),
        (8, 64, 2.0, [16, 32, 64]),
        (64, 8, 2.0, [32, 16, 8]),
        (8, 60, 2.0, [16, 32, 60]),
        (8, 8, 2.0, [8]),
        (2, 8, 1.25, [4, 6, 8]),
    ],
)
def test_a_batch_comes_to_what_is_wanted_epoch_by_epoch(
    own: int, wanted: int, growth: float, batches: list[int]
) -> None:
    assert batches_until(own, wanted, growth) == batches


def test_growth_is_for_batches_that_change_at_epochs_ends() -> None:
    with pytest.raises(ValidationError, match="with change: start nothing does"):
        ChangingBatch.model_validate({"range": [8, 64], "change": "start", "learning_rate": "keep", "growth": 2})
    with pytest.raises(ValidationError, match=r"1\.25"):
        ChangingBatch.model_validate({"range": [8, 64], "learning_rate": "keep", "growth": 1})


def test_specs_of_older_runs_have_no_growth() -> None:
    batch = {"range": [8, 64], "learning_rate": "keep"}
    for growth, told in (({}, False), ({"growth": 2}, True)):
        spec = a_spec({"name": "a", "batch": {**batch, **growth}})
        assert ("growth" in results_mapping(spec)["jobs"]["a"]["batch"]) is told
