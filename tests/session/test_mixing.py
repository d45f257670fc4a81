"""Devices of different kinds are for jobs at D2 whose models do not mind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleet.coordination.job_record import JobRecord
from fleet.coordination.live_state import LiveState
from fleet.machine.cluster_map import ClusterMap, pretended
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.session.plannable_devices import mixes_kinds, stays_on_one
from fleet.spec import EnsembleSpec
from fleet.workers.runtime import Runtime

MODELS = ("trainers.zoo:MLP", "tests.commands.support.networks:Dropping", "tests.commands.support.networks:Averaging")


def runtime(level: str, model: str = MODELS[0]) -> Runtime:
    job: dict[str, Any] = {"name": "net", "model": model, "data": "digits", "stop": {"epochs": 1}}
    job["optimizer"] = {"name": "SGD", "arguments": {"lr": 0.1}}
    data = {"digits": {"train": "examples.digits:Digits"}}
    return Runtime(EnsembleSpec.from_mapping({"name": "one", "determinism": level, "data": data, "jobs": [job]}))


def cluster(device: str, *models: str, **kinds: Any) -> ClusterMap:
    """Two trainers, on accelerators of these models."""
    made = pretended((2,), 1, device, "here", kinds=kinds)
    told = dict(zip((place.rank for place in made.trainers), models or ("A", "A")))
    return replace(made, places=tuple(replace(place, device_model=told.get(place.rank)) for place in made.places))


@pytest.mark.parametrize("level", ["D0", "D1"])
def test_below_d2_nobody_may(level: str) -> None:
    may, why = mixes_kinds(runtime(level), cluster("cpu", fast=[0], slow=[1]), "net")
    assert not may and f"determinism is {level}" in why


@pytest.mark.parametrize("model", MODELS)
def test_on_processors_everybody_may_at_d2(model: str) -> None:
    assert mixes_kinds(runtime("D2", model), cluster("cpu", fast=[0], slow=[1]), "net") == (True, "")


def test_accelerators_of_several_models_are_not_mixed() -> None:
    may, why = mixes_kinds(runtime("D2"), cluster("cuda", "A", "B", fast=[0], slow=[1]), "net")
    assert not may and "several models (A, B)" in why and "nobody has tried" in why


def test_on_accelerators_of_one_model_the_scan_decides() -> None:
    kinds = cluster("cuda", fast=[0], slow=[1])
    assert mixes_kinds(runtime("D2"), kinds, "net") == (True, "")
    assert stays_on_one(runtime("D2"), kinds, "net") == []
    for model, found in zip(MODELS[1:], ("Dropout): random draws", "Averaging): sums")):
        (told,) = stays_on_one(runtime("D2", model), kinds, "net")
        assert told.startswith("job net keeps to one kind of device") and found in told
    assert stays_on_one(runtime("D1", MODELS[1]), kinds, "net") == [], "the level says it"


def test_policies_are_told() -> None:
    curve = RateCurve({1: 10.0}, 2)
    records = [
        JobRecord.of(JobState(name, curve, 1, mixed_kinds=mixed), "s") for name, mixed in (("a", True), ("b", False))
    ]
    jobs = LiveState(Cluster((2,)), records, 0).for_policy(0.0).jobs
    assert [job.mixed_kinds for job in jobs] == [True, False]
