"""Population-based training has the same lineage, winner and bits on any number of devices, and after a kill."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import trainers
from tests.live.search.test_searching_runs import assert_same_search, decisions
from tests.live.support import parts
from tests.live.support.ensembles import Ensemble, RunFolder, write_ensemble
from tests.live.support.processes import FLEET, run, started

POPULATION: dict[str, Any] = {
    "name": "member-{trial}",
    "job": {
        "model": {
            "name": "trainers.zoo:CNN", "arguments": {"widths": [4], "classes": parts.CLASSES},
        },
        "optimizer": {"name": "AdamW"},
        "stop": {"epochs": 4},
    },
    "over": {
        "optimizer.arguments.lr": {"log_uniform": [0.0001, 0.1]},
        "optimizer.arguments.weight_decay": {"choice": [0.0, 0.01, 0.1]},
    },
    "metric": "loss",
    "stopping": {"name": "population", "quantile": 0.4},
    "width": 4,
    "trials": 5,
}  # fmt: skip


@pytest.fixture(scope="module")
def population(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    folder = tmp_path_factory.mktemp("population")
    settings: dict[str, Any] = {"policy": {"name": "local"}, "checkpoints": {"keep": 1}, "ensemble": False}
    return write_ensemble(folder, [], measured=False, search=POPULATION, **settings)


@pytest.fixture(scope="module")
def on_one_device(population: Ensemble) -> RunFolder:
    ended = run(population.plain("one"), population.folder)
    assert ended.code == 0, ended.output
    return population.left("one")


def copies(folder: RunFolder) -> list[dict[str, Any]]:
    return [line for line in folder.events("search") if line.get("copy")]


def test_members_go_on_from_better_ones_with_values_near_theirs(on_one_device: RunFolder) -> None:
    assert copies(on_one_device)
    last = {line["job"]: line for line in copies(on_one_device)}
    for name, line in last.items():
        newest, _ = trainers.latest_good(on_one_device.path / "checkpoints" / name)
        assert newest is not None and newest.job == name and newest.epoch == 4 and len(newest.history) == 4
        group = newest.optimizer["param_groups"][0]
        assert group["lr"] == line["copy"]["values"]["optimizer.arguments.lr"]
        assert group["weight_decay"] == line["copy"]["values"]["optimizer.arguments.weight_decay"]
    told = {trial["name"]: trial for trial in on_one_device.summary["search"]["trials"]}
    for name, trial in told.items():
        assert trial.get("latest_values") == (last[name]["copy"]["values"] if name in last else None)
    assert {trial["epochs"] for trial in on_one_device.summary["search"]["trials"]} == {4}
    assert not list(on_one_device.path.glob("checkpoints/*/settled"))


def test_three_devices_have_the_same_lineage_and_bits(population: Ensemble, on_one_device: RunFolder) -> None:
    ended = run(population.plain("three", "--trainers", "3"), population.folder)
    assert ended.code == 0, ended.output
    assert decisions(population.left("three")) == decisions(on_one_device)
    assert [line["copy"] for line in copies(population.left("three"))] == [
        line["copy"] for line in copies(on_one_device)
    ]
    assert_same_search(population.left("three"), on_one_device)


@pytest.mark.slow
def test_a_killed_population_goes_on_to_the_same(population: Ensemble, on_one_device: RunFolder) -> None:
    folder = population.left("killed")
    with started(population.plain("killed", "--trainers", "2"), population.folder) as it:
        it.wait_for(lambda: len(copies(folder)) >= 1, "a member that goes on from another")
        it.kill()
    ended = run(population.plain("killed", "--trainers", "2", "--policy", "malleable"), population.folder)
    assert ended.code == 0, ended.output
    assert_same_search(folder, on_one_device)


def damaged_copy(population: Ensemble, out: str) -> tuple[RunFolder, dict[str, Any], list[Path]]:
    """A population that was killed after its first copy, whose checkpoints are damaged; the copy's line, and these."""
    folder = population.left(out)
    with started(population.plain(out), population.folder) as it:
        it.wait_for(lambda: len(copies(folder)) >= 1, "a member that goes on from another")
        it.kill()
    line = copies(folder)[0]
    for path in folder.checkpoints(line["job"]):
        weights = next(iter(trainers.read(path).parameters.values())).numpy().tobytes()
        content = path.read_bytes()
        path.unlink()  # its other names keep what was written
        path.write_bytes(content.replace(weights, bytes(len(weights)), 1))
    return folder, line, folder.checkpoints(line["job"])


def test_a_copy_that_is_damaged_is_made_again_and_told(population: Ensemble, on_one_device: RunFolder) -> None:
    folder, line, damaged = damaged_copy(population, "damaged")
    ended = run(population.plain("damaged"), population.folder)
    assert ended.code == 0, ended.output
    texts = [warning["text"] for warning in folder.events("warning", line["job"])]  # of later epochs, too
    (told,) = (text for text in texts if "copied again" in text)
    donor = f"member-{line['copy']['donor']} after epoch {line['copy']['epoch']}"
    assert told.endswith(f"; the weights of {donor}, from which it went on, are copied again")
    assert all(str(path) in told for path in damaged) and told in ended.output
    assert_same_search(folder, on_one_device)


@pytest.mark.slow
def test_a_damaged_copy_that_cannot_be_made_again_is_told_with_what_is_used(population: Ensemble) -> None:
    folder, line, damaged = damaged_copy(population, "lost")
    shutil.rmtree(folder.path / "checkpoints" / line["job"] / "settled")
    ended = run(population.plain("lost"), population.folder)
    assert ended.code == 0, ended.output
    texts = [warning["text"] for warning in folder.events("warning", line["job"])]
    (told,) = (text for text in texts if "cannot be copied again" in text)
    assert str(damaged[-1]) in told and told.endswith(": it begins anew with its own")


def test_a_member_cannot_be_replayed_alone(population: Ensemble, on_one_device: RunFolder) -> None:
    name = copies(on_one_device)[0]["job"]
    command = [*FLEET, "replay", str(on_one_device.path), name, "--checkpoint", str(population.folder / "replayed.h5")]
    ended = run(command, population.folder)
    assert ended.code == 2 and "as its population wanted" in ended.output
