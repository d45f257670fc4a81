"""Jobs that need several devices at least: they wait for these, never have fewer, and keep their bits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import Ensemble, RunFolder, cnn, mlp, write_ensemble
from tests.live.support.processes import FLEET, run

LEAST = {"first": 1, "pair": 2, "all": 3}


def ensemble_on(folder: Path, least: bool = True, policy: str = "easyscale") -> Ensemble:
    jobs = [
        mlp("first", virtual_workers=3, stop={"epochs": 2}),
        mlp("pair", virtual_workers=4, stop={"epochs": 3}),
        cnn("all", virtual_workers=3),
    ]
    if least:
        jobs = [{**job, "minimum_devices": LEAST[job["name"]]} for job in jobs]
    return write_ensemble(folder, jobs, policy={"name": policy})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    ensemble = ensemble_on(tmp_path_factory.mktemp("least"))
    ended = run(ensemble.plain("run", "--trainers", "3"), ensemble.folder)
    assert ended.code == 0, ended.output
    return ensemble.left("run")


def test_no_group_is_smaller_than_its_job_says(trained: RunFolder) -> None:
    for job, least in LEAST.items():
        started = [len(event["devices"]) for event in trained.events("started", job)]
        assert started and min(started) >= least, (job, started)
        assert trained.events("job", job)[0]["minimum_devices"] == least
    for event in trained.events("planned"):
        assert all(len(devices) >= LEAST[job] for job, devices in event["allocation"].items())


def test_bits_are_those_of_a_run_that_has_one_device(trained: RunFolder, tmp_path: Path) -> None:
    alone = ensemble_on(tmp_path, least=False, policy="flotilla")
    ended = run(alone.plain("run", "--trainers", "1"), tmp_path)
    assert ended.code == 0, ended.output
    assert_same_bits(final_states(trained, tuple(LEAST)), final_states(alone.left("run"), tuple(LEAST)))


def test_the_simulator_keeps_to_the_journal_s_numbers(trained: RunFolder, tmp_path: Path) -> None:
    words = [*FLEET, "simulate", "--run", str(trained.path), "--policy"]
    played = run([*words, "easyscale", "--json"], tmp_path)
    assert played.code == 0 and json.loads(played.output), played.output
    refused = run([*words, "flotilla"], tmp_path)
    assert refused.code == 2 and "job pair and 1 more have minimum_devices" in refused.output, refused.output


def test_too_few_trainers_and_policies_that_do_not_keep_it_are_refused_at_once(tmp_path: Path) -> None:
    ensemble = ensemble_on(tmp_path)
    for command in (ensemble.plain("run", "--trainers", "1"), [*FLEET, "plan", str(ensemble.spec), "--trainers", "1"]):
        ended = run(command, tmp_path)
        assert ended.code == 2 and "2 problems" in ended.output, ended.output
        assert "jobs[1].minimum_devices = 2" in ended.output and "jobs[2].minimum_devices = 3" in ended.output
    ended = run([*FLEET, "plan", str(ensemble.spec), "--cluster", "2"], tmp_path)
    assert ended.code == 2 and "there are 2 trainers" in ended.output and "jobs[1]" not in ended.output, ended.output
    ended = run([*FLEET, "plan", str(ensemble.spec), "--policy", "local"], tmp_path)
    assert ended.code == 2 and "easyscale" in ended.output and "keep to minimum_devices" in ended.output, ended.output
    assert "Traceback" not in ended.output
    told = run([*FLEET, "plan", str(ensemble.spec), "--cluster", "3"], tmp_path)
    assert told.code == 0 and "2 to 4" in told.output, told.output
