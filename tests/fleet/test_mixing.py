"""Devices of different kinds are for jobs at D2 whose models do not mind."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.coordination.job_record import JobRecord
from fleet.coordination.ledger import Ledger
from fleet.run.mixed_kinds import mixes_kinds
from fleet.run.ranks.runtime import Runtime
from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.model.state import Cluster
from fleet.spec import EnsembleSpec


def runtime(level: str) -> Runtime:
    job: dict[str, Any] = {"name": "net", "model": "trainers.zoo:MLP", "data": "digits", "stop": {"epochs": 1}}
    job["optimizer"] = {"name": "SGD", "arguments": {"lr": 0.1}}
    data = {"digits": {"train": "examples.digits:Digits"}}
    return Runtime(EnsembleSpec.from_mapping({"name": "one", "determinism": level, "data": data, "jobs": [job]}))


@pytest.mark.parametrize("level", ["D0", "D1"])
def test_below_d2_nobody_may(level: str) -> None:
    may, why = mixes_kinds(runtime(level), "cpu")
    assert not may and f"determinism is {level}" in why


def test_on_processors_everybody_may_at_d2() -> None:
    assert mixes_kinds(runtime("D2"), "cpu") == (True, "")


@pytest.mark.parametrize("device", ["cuda:0", "xpu:1"])
def test_on_accelerators_nobody_may_yet(device: str) -> None:
    may, why = mixes_kinds(runtime("D2"), device)
    assert not may and "multiprocessors" in why


def test_policies_are_told() -> None:
    curve = RateCurve({1: 10.0}, 2)
    records = [
        JobRecord.of(JobState(name, curve, 1, mixed_kinds=mixed), "s") for name, mixed in (("a", True), ("b", False))
    ]
    jobs = Ledger(Cluster((2,)), records, 0).state(0.0).jobs
    assert [job.mixed_kinds for job in jobs] == [True, False]
