"""Two trainers of one network on an accelerator: chosen where they are faster, and no bit tells of it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.device.rig import Rig
from tests.device.test_runs import ON_ITS_OWN, assert_same_bits
from tests.live.support.bits import final_states
from tests.live.support.ensembles import Ensemble, RunFolder, cnn, mlp, write_ensemble, write_rates
from tests.live.support.processes import FLEET, run

JOBS = ("mlp", "cnn")
TWO = {"RIG_DEVICES": "2"}
SECONDS = 400.0
"""That a run may take, beside much else."""
SHARED = {"trainers": None, "device": "auto", "members_per_device": 2, "ring_samples": 128, "slot_samples": 8}
EXECUTORS = {"mlp": {1: 1e6, 2: 1.6e6}, "cnn": {1: 1e6, 2: 0.9e6}}
"""Two together are faster for the one, and slower for the other."""


def ensemble_of(folder: Path, known: bool = True, **sections: Any) -> Ensemble:
    policy = {"name": "easyscale", "parameters": {"executors": 2}}
    jobs = [mlp(virtual_workers=4, stop={"epochs": 3}), cnn(virtual_workers=4)]
    more: dict[str, Any] = {"resources": SHARED, "policy": policy, **sections}
    ensemble = write_ensemble(folder, jobs, measured=known, **more)
    if known:
        shared = {job: {1: 6e5, 2: 1.1e6} for job in JOBS}
        write_rates(folder / "rates.json", shared | {f"{job}, executors": rates for job, rates in EXECUTORS.items()})
    return ensemble


@pytest.fixture(scope="module")
def on_cpu(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    ensemble = ensemble_of(tmp_path_factory.mktemp("cpu"))
    ended = run(
        ensemble.plain("run", "--set", "resources.device=cpu", "--trainers", "1"),
        ensemble.folder,
        SECONDS,
        **rig.variables,
    )
    assert ended.code == 0, ended.output
    return ensemble.left("run")


def layouts(folder: RunFolder, job: str) -> list[list[int]]:
    """How many trainers on each accelerator, for each start of the job."""
    (cluster,) = folder.events("cluster")
    of = {rank["device"]: rank["device_name"] for rank in cluster["ranks"] if rank["device"] is not None}
    starts = folder.events("started", job)
    return [sorted(Counter(of[device] for device in event["devices"]).values()) for event in starts]


def assert_cpu_s_bits(folder: RunFolder, on_cpu: RunFolder) -> None:
    of_cpu = final_states(on_cpu, JOBS)
    for job, path in final_states(folder, JOBS).items():
        assert_same_bits(path, of_cpu[job])


def test_each_network_has_as_many_trainers_on_its_device_as_are_fastest(
    rig: Rig, on_cpu: RunFolder, tmp_path: Path
) -> None:
    ensemble = ensemble_of(tmp_path)
    variables = {**rig.variables, **ON_ITS_OWN, **TWO}
    ended = run(ensemble.plain("run"), tmp_path, SECONDS, **variables)
    assert ended.code == 0, ended.output
    folder = ensemble.left("run")
    assert folder.summary["reduce"] == "mpi", "devices that trainers share do not add"
    assert all(set(layout) == {2} for layout in layouts(folder, "mlp")), layouts(folder, "mlp")
    assert all(set(layout) == {1} for layout in layouts(folder, "cnn")), layouts(folder, "cnn")
    told = {(event["job"], event["executors"]): event["rate"] for event in folder.events("executor_profile")}
    assert told == {(job, count): rate for job, rates in EXECUTORS.items() for count, rate in rates.items()}
    assert_cpu_s_bits(folder, on_cpu)


@pytest.mark.slow
def test_they_are_measured_with_an_accelerator_for_themselves(rig: Rig, on_cpu: RunFolder, tmp_path: Path) -> None:
    ensemble = ensemble_of(tmp_path, known=False, profile={"batches": 4, "timed": 2})
    ended = run(ensemble.plain("run"), tmp_path, SECONDS, **{**rig.variables, **ON_ITS_OWN, **TWO})
    assert ended.code == 0, ended.output
    folder = ensemble.left("run")
    told = {(event["job"], event["executors"]): event["rate"] for event in folder.events("executor_profile")}
    assert told.keys() == {(job, count) for job in JOBS for count in (1, 2)}
    for job in JOBS:
        assert layouts(folder, job) and all(len(set(layout)) == 1 for layout in layouts(folder, job))
    kept = json.loads((folder.path / "profile.json").read_text())["rates"]
    assert {tuple(rates.values()) for rates in kept.values()} >= {(told[job, 1], told[job, 2]) for job in JOBS}, (
        "the next start need not measure them"
    )
    assert_cpu_s_bits(folder, on_cpu)


def test_a_plan_has_the_same_trainers(rig: Rig, tmp_path: Path) -> None:
    ensemble = ensemble_of(tmp_path)
    words = [*FLEET, "plan", str(ensemble.spec), "--cluster", "2", "--json"]
    ended = run(words, tmp_path, SECONDS, **{**rig.variables, **TWO})
    assert ended.code == 0, ended.output
    (first, *_) = json.loads(ended.output)["flotillas"]
    assert first["allocation"] == {"mlp": [1, 3], "cnn": [0]}
