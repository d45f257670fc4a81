"""Guaranteed jobs that come while others train: who gives up devices, who has them back, and no bit tells of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import WELL_FED, RunFolder, mlp, write_ensemble
from tests.live.support.processes import run

JOBS = ("slow", "serving", "late")


def trained(folder: Path, trainers: int, *jobs: dict[str, Any], **parameters: Any) -> RunFolder:
    """Of a slow job, whose virtual workers take half a second each for a step, and others."""
    slow = {"name": "slow", "model": {"name": "parts:Slow"}, "stop": {"epochs": 1}}
    policy = {"name": "easyscale", "parameters": parameters}
    first, *others = jobs
    ensemble = write_ensemble(folder, [{**slow, **first}, *others], policy=policy, rates=WELL_FED)
    ended = run(ensemble.plain("run", "--trainers", str(trainers)), folder)
    assert ended.code == 0, ended.output
    return ensemble.left("run")


def serving(workers: int) -> dict[str, Any]:
    return mlp("serving", virtual_workers=workers, guaranteed=True, arrival=3.0, stop={"epochs": 1})


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """All on one trainer, one after the other."""
    jobs = ({"virtual_workers": 2}, {**serving(1), "arrival": 0.0, "guaranteed": False}, mlp("late"))
    return trained(tmp_path_factory.mktemp("alone"), 1, *jobs)


def devices(folder: RunFolder, job: str) -> list[list[int]]:
    return [event["devices"] for event in folder.events("started", job)]


def test_a_job_below_its_least_waits_for_the_same_devices(alone: RunFolder, tmp_path: Path) -> None:
    late = mlp("late", virtual_workers=2, arrival=1.0)
    folder = trained(tmp_path, 2, {"virtual_workers": 2, "minimum_devices": 2}, serving(1), late)
    assert devices(folder, "slow") == [[0, 1], [0, 1]], "the same two again"
    (stopped,), (done,) = folder.events("stopped", "slow"), folder.events("done", "serving")
    assert len(devices(folder, "serving")) == 1 and stopped["why"] == "policy"
    assert folder.events("started", "slow")[1]["t"] >= done["t"], "it has waited"
    assert folder.events("started", "late")[0]["t"] >= folder.events("done", "slow")[0]["t"]
    assert_same_bits(final_states(folder, JOBS), final_states(alone, JOBS))


def test_headroom_is_free_when_a_guaranteed_job_comes_and_nobody_stops(alone: RunFolder, tmp_path: Path) -> None:
    folder = trained(tmp_path, 3, {"virtual_workers": 2}, serving(1), mlp("late", arrival=1.0), headroom=0.3)
    assert devices(folder, "slow") == [[0, 1]] and not folder.events("stopped")
    assert devices(folder, "serving") == [[2]], "which late has not got"
    assert folder.events("started", "late")[0]["t"] > folder.events("started", "serving")[0]["t"]
    assert_same_bits(final_states(folder, JOBS), final_states(alone, JOBS))


def test_beyond_the_quota_nobody_gives_up_a_device(tmp_path: Path) -> None:
    folder = trained(tmp_path, 2, {"virtual_workers": 2}, serving(2), quota=0.5)
    assert not folder.events("stopped") and devices(folder, "serving") == [[0, 1]]
    assert folder.events("started", "serving")[0]["t"] >= folder.events("done", "slow")[0]["t"]
