"""Jobs that are added to a run: taken in while it goes on, or at its next start, with the bits they have anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import Ensemble, RunFolder, cnn, mlp, write_ensemble
from tests.live.support.processes import FLEET, Ended, run, started

NAMES = ("mlp", "cnn", "late")


def late(**keys: Any) -> dict[str, Any]:
    """The job that comes late, with all that the spec's defaults would give it."""
    defaults = {
        "data": "pictures",
        "optimizer": {"name": "SGD", "arguments": {"lr": 0.05, "momentum": 0.9}},
        "metrics": ["accuracy"],
        "virtual_workers": 2,
        "batch_size": 4,
        "stop": {"epochs": 3},
    }
    return {**defaults, **cnn("late", optimizer={"name": "SGD", "arguments": {"lr": 0.02, "momentum": 0.5}}, **keys)}


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    jobs = [{**job, "stop": {"epochs": 4}} for job in (mlp(), cnn())]
    return write_ensemble(tmp_path_factory.mktemp("added"), jobs, policy={"name": "malleable"})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The same three jobs, all in the spec from the beginning."""
    jobs = [{**job, "stop": {"epochs": 4}} for job in (mlp(), cnn())]
    whole = write_ensemble(tmp_path_factory.mktemp("whole"), [*jobs, late()])
    ended = run(whole.plain("out"), whole.folder)
    assert ended.code == 0, ended.output
    return whole.left("out")


def add(ensemble: Ensemble, out: str, job: Any) -> Ended:
    path = ensemble.folder / "job.yaml"
    path.write_text(yaml.safe_dump(job, sort_keys=False))
    return run([*FLEET, "add", str(ensemble.folder / out), str(path)], ensemble.folder)


def held(ensemble: Ensemble, out: str) -> Mapping[str, str]:
    """Variables that hold a run's held-out pictures back after its first epoch, until its file is there."""
    return {"GATE": str(ensemble.folder / f"{out}-goes-on"), "GATE_AFTER": "1"}


def assert_complete(folder: RunFolder, undisturbed: RunFolder) -> None:
    jobs = folder.summary["jobs"]
    assert {name: jobs[name]["status"] for name in NAMES} == dict.fromkeys(NAMES, "done")
    assert_same_bits(final_states(folder, NAMES), final_states(undisturbed, NAMES))


def test_a_run_takes_in_a_job_trains_it_and_knows_it_ever_after(ensemble: Ensemble, undisturbed: RunFolder) -> None:
    folder, gate = ensemble.left("out"), held(ensemble, "out")
    with started(ensemble.plain("out", "--trainers", "2"), ensemble.folder, **gate) as it:
        it.wait_for(lambda: len(folder.events("started")) >= 2, "both jobs to train")
        ended = add(ensemble, "out", late())
        assert ended.code == 0 and "late: taken in" in ended.output, ended.output
        it.kill()
    (rates,) = folder.events("rates", "late")
    assert rates["source"] == "guessed"
    arrival = folder.events("job", "late")[0]["arrival"]
    assert arrival >= folder.events("started")[1]["t"]
    ended = run(ensemble.plain("out", "--trainers", "2"), ensemble.folder)
    assert ended.code == 0, ended.output
    assert folder.events("job", "late")[1]["arrival"] == arrival
    assert_complete(folder, undisturbed)


@pytest.mark.slow
def test_a_job_that_is_taken_in_is_trained_by_the_run_that_goes_on(ensemble: Ensemble, undisturbed: RunFolder) -> None:
    folder, gate = ensemble.left("beside"), held(ensemble, "beside")
    with started(ensemble.plain("beside", "--trainers", "3"), ensemble.folder, **gate) as it:
        it.wait_for(lambda: len(folder.events("started")) >= 2, "both jobs to train")
        assert add(ensemble, "beside", {"jobs": [late()]}).code == 0
        Path(gate["GATE"]).touch()
        assert it.finish().code == 0
    assert len(folder.events("session")) == 1
    assert folder.events("done", "late")[0]["t"] > folder.events("job", "late")[0]["arrival"] > 0
    assert_complete(folder, undisturbed)


@pytest.mark.slow
def test_a_job_added_to_a_run_that_is_over_is_trained_by_its_next_start(
    ensemble: Ensemble, undisturbed: RunFolder
) -> None:
    folder = ensemble.left("over")
    assert run(ensemble.plain("over"), ensemble.folder).code == 0
    ended = add(ensemble, "over", [late()])
    assert ended.code == 0 and "next start trains them too" in ended.output
    ended = run(ensemble.plain("over"), ensemble.folder)
    assert ended.code == 0, ended.output
    assert_complete(folder, undisturbed)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"name": "mlp"}, ["jobs[0].name", "the run has a job of this name"], marks=pytest.mark.slow),
        pytest.param({"data": "sounds"}, ["jobs[0].data", "pictures"], marks=pytest.mark.slow),
        pytest.param({"stop": {"epoch": 3}}, ["stop.epoch", "epochs"], marks=pytest.mark.slow),
        pytest.param({"model": {"name": "trainers.zoo:CMN"}}, ["trainers.zoo:CMN", "CNN"], marks=pytest.mark.slow),
        pytest.param(
            {"virtual_workers": 2, "minimum_devices": 2},
            ["jobs[0].minimum_devices", "easyscale"],
            marks=pytest.mark.slow,
        ),
        ({"virtual_workers": 0, "batch_size": -1}, ["virtual_workers", "batch_size"]),
    ],
    ids=["name", "data", "key", "model", "minimum", "two at once"],
)
def test_a_job_that_cannot_join_is_told_apart_at_once(
    ensemble: Ensemble, undisturbed: RunFolder, change: dict[str, Any], words: list[str]
) -> None:
    if not (ensemble.left("plain").path / "ensemble.json").exists():
        assert run(ensemble.plain("plain"), ensemble.folder).code == 0
    ended = add(ensemble, "plain", {**late(), **change})
    assert ended.code == 2 and "Traceback" not in ended.output, ended.output
    assert all(word in ended.output for word in words), ended.output
    assert not (ensemble.left("plain").path / "added" / "offered" / "late.json").exists()


@pytest.mark.slow
def test_a_job_whose_step_the_ring_cannot_hold_is_refused_while_the_run_goes_on(ensemble: Ensemble) -> None:
    folder, gate = ensemble.left("large"), held(ensemble, "large")
    with started(ensemble.plain("large"), ensemble.folder, **gate) as it:
        it.wait_for(lambda: len(folder.events("started")) >= 1, "a job to train")
        ended = add(ensemble, "large", late(batch_size=32))
        assert ended.code == 2 and "holds 128" in ended.output and "stands still" in ended.output, ended.output
        Path(gate["GATE"]).touch()
        assert it.finish().code == 0
    assert "late" not in folder.summary["jobs"]
    assert any("not taken in" in warning["text"] for warning in folder.events("warning"))


def test_a_folder_without_a_run_is_told(ensemble: Ensemble, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: x\n")
    ended = run([*FLEET, "add", str(tmp_path), str(path)], tmp_path)
    assert ended.code == 2 and "holds no run" in ended.output and "Traceback" not in ended.output


@pytest.mark.slow
def test_a_file_that_holds_no_job_is_refused_by_the_next_start_which_goes_on(ensemble: Ensemble) -> None:
    folder = ensemble.left("broken")
    assert run(ensemble.plain("broken"), ensemble.folder).code == 0
    offered = folder.path / "added" / "offered"
    offered.mkdir(parents=True)
    (offered / "half.json").write_text('{"name": "half", "virtual_workers": 0}')
    (offered / "torn.json").write_text('{"name"')
    ended = run(ensemble.plain("broken"), ensemble.folder)
    assert ended.code == 0, ended.output
    refused = {path.stem: path.read_text() for path in (folder.path / "added" / "refused").glob("*.txt")}
    assert "virtual_workers" in refused["half"] and "holds no job" in refused["torn"], refused
