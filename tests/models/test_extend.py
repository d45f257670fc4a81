"""A network that is trained further has the bits of a run that was longer from the start."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fleet.commands.cli import app
from tests.live.support.ensembles import RunFolder
from tests.live.support.processes import FLEET, MPIEXEC, Ended, run
from tests.models.support.families import FAMILIES, LONG, SHORT, long_ensemble, short_ensemble


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The networks trained longer from the start."""
    ensemble = long_ensemble(tmp_path_factory.mktemp("long"), FAMILIES[:3])
    ended = run(ensemble.plain("run"), ensemble.folder)
    assert ended.code == 0, ended.output
    return ensemble.left("run")


@pytest.fixture(scope="module")
def extended(trained: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A copy of the short run, which tests extend one after the other."""
    folder = tmp_path_factory.mktemp("extended") / "here"
    shutil.copytree(trained.path.parent, folder)
    ensemble = folder / "run" / "ensemble.json"
    ensemble.write_text(ensemble.read_text().replace(str(trained.path.parent), str(folder)))
    return RunFolder(folder / "run")


def extend(run_folder: RunFolder, job: str, *options: str, launcher: tuple[str, ...] = ()) -> Ended:
    return run([*launcher, *FLEET, "extend", str(run_folder.path), job, *options], run_folder.path.parent)


def recorded_stops(run_folder: RunFolder) -> dict[str, dict[str, Any]]:
    """Job -> its `stop` in ensemble.json."""
    jobs = json.loads((run_folder.path / "ensemble.json").read_text())["spec"]["jobs"]
    return {job["name"]: job["stop"] for job in jobs}


def assert_equal(one: RunFolder, other: RunFolder, job: str) -> None:
    paths = [str(each.path / "checkpoints" / job) for each in (one, other)]
    answer = CliRunner().invoke(app, ["compare", *paths])
    assert answer.exit_code == 0 and "equal: every bit" in answer.output, answer.output


def test_on_other_trainers_it_has_the_bits_of_the_longer_run(extended: RunFolder, longer: RunFolder) -> None:
    ended = extend(extended, "mlp", "--epochs", str(LONG), "--trainers", "2")
    assert ended.code == 0, ended.output
    assert_equal(extended, longer, "mlp")
    again = extend(extended, "mlp", "--epochs", str(LONG))
    assert again.code == 0, "the same command again finds it done"
    assert len(extended.events("extended")) == 1 and len(extended.events("done", "mlp")) == 2


@pytest.mark.slow
def test_under_a_launcher_and_in_two_goes_it_has_them_too(extended: RunFolder, longer: RunFolder) -> None:
    ended = extend(extended, "cnn", "--epochs", "3", launcher=(*MPIEXEC, "-n", "2"))
    assert ended.code == 0, ended.output
    ended = extend(extended, "cnn", "--epochs", str(LONG))
    assert ended.code == 0, ended.output
    assert_equal(extended, longer, "cnn")


def test_an_extension_that_was_cut_off_goes_on_with_the_spec_of_the_run(extended: RunFolder, longer: RunFolder) -> None:
    """As its ranks die: the extension is written down, and the run's first command carries it out."""
    told = extended.path / "extended.json"
    earlier = json.loads(told.read_text())["jobs"] if told.exists() else {}
    stop = recorded_stops(extended)["resnet"]
    asked = {"epochs": LONG, "only_epochs": False, "before": stop}
    told.write_text(json.dumps({"jobs": {**earlier, "resnet": asked}}))
    spec = extended.path.parent / "ensemble.yaml"
    ended = run([*FLEET, "run", str(spec), "--out", str(extended.path)], spec.parent)
    assert ended.code == 0, ended.output
    assert_equal(extended, longer, "resnet")
    stops = recorded_stops(extended)
    assert stops["resnet"]["epochs"] == LONG and stops["fixed"]["epochs"] == SHORT


def test_what_cannot_be_extended_is_told_with_the_mend(trained: RunFolder) -> None:
    fixed = extend(trained, "fixed", "--epochs", "4")
    assert "OneCycleLR with total_steps = 20 has a fixed length, and 4 epochs take 40 steps" in fixed.output
    reached = extend(trained, "reached", "--epochs", "20")
    assert "ended after epoch 1, as its target was reached" in reached.output and "--only-epochs" in reached.output
    fewer = extend(trained, "mlp", "--epochs", "2")
    assert "trains 2 epochs already" in fewer.output
    unknown = extend(trained, "mpl", "--epochs", "9")
    assert "did you mean mlp?" in unknown.output
    for ended in (fixed, reached, fewer, unknown):
        assert ended.code == 2 and "Traceback" not in ended.output, ended.output
    assert not (trained.path / "extended.json").exists()


def test_a_target_can_be_left_aside(extended: RunFolder) -> None:
    ended = extend(extended, "reached", "--epochs", "3", "--only-epochs")
    assert ended.code == 0, ended.output
    assert extended.summary["jobs"]["reached"]["epochs"] == 3


@pytest.mark.slow
def test_twelve_families(tmp_path: Path) -> None:
    short, long = short_ensemble(tmp_path / "short", FAMILIES), long_ensemble(tmp_path / "long", FAMILIES)
    for ensemble in (short, long):
        ended = run(ensemble.plain("run"), ensemble.folder)
        assert ended.code == 0, ended.output
    for job in FAMILIES:
        ended = extend(short.left("run"), job["name"], "--epochs", str(LONG))
        assert ended.code == 0, ended.output
        assert_equal(short.left("run"), long.left("run"), job["name"])
    assert len(FAMILIES) == 12
