"""Failures that are no network's: the run ends soon, says why, and leaves no process behind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.live.support.ensembles import Ensemble, counting, faulty, mlp, pictures, write_ensemble
from tests.live.support.processes import Ended, run

SOON = 90.0  # seconds; a wait for a rank that is gone would last 300
SUNK = "lies at the bottom of the sea"


def broken(folder: Path, train: Mapping[str, Any] | None = None, held_out: Mapping[str, Any] | None = None) -> Ensemble:
    return write_ensemble(folder, [mlp(), counting()], data={"pictures": pictures(train, held_out)})


def end_badly(command: list[str], folder: Path) -> Ended:
    ended = run(command, folder, SOON)
    assert ended.code not in (0, 75), ended.output
    return ended


def test_training_sample_that_cannot_be_read(tmp_path: Path) -> None:
    """It is met first where the preprocessors' speed is measured, in the coordinator's own thread."""
    ensemble = broken(tmp_path, train={"broken": [40]})
    ended = end_badly(ensemble.plain("run"), tmp_path)
    assert SUNK in ended.output and "sample 40" in ended.output


@pytest.mark.slow
def test_sample_that_another_rank_cannot_read(tmp_path: Path) -> None:
    ensemble = broken(tmp_path, held_out={"broken": list(range(1, 27)), "broken_on": 1})
    ended = end_badly(ensemble.under_mpiexec(3, "run", "--preprocessors", "2"), tmp_path)
    assert SUNK in ended.output and "rank 1" in ended.output


@pytest.mark.slow
def test_data_that_another_rank_cannot_open(tmp_path: Path) -> None:
    """A file that one node has and another has not."""
    ensemble = broken(tmp_path, train={"broken": [0], "broken_on": 1})
    ended = end_badly(ensemble.plain("run", "--preprocessors", "2"), tmp_path)
    assert ended.code == 2
    assert SUNK in ended.output and "rank 1" in ended.output


@pytest.mark.slow
def test_trainer_that_is_killed(tmp_path: Path) -> None:
    """The kernel ends a process that takes too much memory; nobody can tell the others then but the launcher."""
    ensemble = write_ensemble(tmp_path, [mlp(), faulty("heavy", "kill")])
    ended = end_badly(ensemble.plain("run", "--trainers", "2", "--restarts", "1", "--no-in-place"), tmp_path)
    assert ended.code == 70 and "signal 9" in ended.output
    assert "(1 of 1)" in ended.output and "run the same command again" in ended.output


@pytest.mark.slow
def test_network_that_costs_one_trainer_after_the_other_fails_and_the_others_are_trained(tmp_path: Path) -> None:
    jobs = [{**job, "virtual_workers": 3} for job in (mlp(), faulty("heavy", "kill"))]
    ensemble = write_ensemble(tmp_path, jobs)
    ended = run(ensemble.plain("run", "--trainers", "5"), tmp_path)
    assert ended.code == 1 and "4 times in a row a rank was lost that trained it" in ended.output, ended.output
    folder = ensemble.left("run")
    assert {job: result["status"] for job, result in folder.summary["jobs"].items()} == {
        "mlp": "done",
        "heavy": "failed",
    }
    assert len(folder.events("lost")) == 4 and len(folder.events("session")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "under mpiexec"])
def test_held_out_sample_that_cannot_be_read_until_it_is_mended(tmp_path: Path, kind: str) -> None:
    """It is met at the end of the first epoch, by the coordinator's own preprocessor, while trainers wait for it."""
    ensemble = broken(tmp_path, held_out={"broken": [20]})
    command = ensemble.plain("run") if kind == "plain" else ensemble.under_mpiexec(2, "run")
    ended = end_badly(command, tmp_path)
    assert SUNK in ended.output and "held_out sample 20" in ended.output
    module = ensemble.folder / "parts.py"
    module.write_text(module.read_text().replace("frozenset(broken)", "frozenset()"))
    ended = run(command, tmp_path)
    assert ended.code == 0, ended.output
    assert ensemble.left("run").summary["status"] == "done"
