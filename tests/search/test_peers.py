"""What the benchmark of other libraries makes of their logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks.fashion_files import fashion_files
from benchmarks.searched.peers import measuring
from benchmarks.searched.peers.measuring import Searched
from benchmarks.searched.peers.plain_training import PlainTraining
from benchmarks.searched.peers.plan import Plan
from benchmarks.searched.peers.ways import FLEET, EpochDone, decided, epochs_of, searched


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan of three trials on a few pictures."""
    monkeypatch.setattr(measuring, "TRIALS", 3)
    files, _ = fashion_files(tmp_path, {"train": 256, "held_out": 64})
    return measuring._prepared(tmp_path / "planned", 2, files)


def test_a_trial_goes_on_from_where_it_was_saved_as_if_it_never_stopped(folder: Path) -> None:
    whole = PlainTraining(folder, 1)
    expected = list(whole.epochs(3))
    first, second = PlainTraining(folder, 1), PlainTraining(folder, 1)
    begun = list(first.epochs(1))
    first.save(folder / "state.pt")
    second.load(folder / "state.pt")
    assert begun + list(second.epochs(3)) == expected
    assert [each.epoch for each in epochs_of("ray", folder)] == [1, 2, 3, 1, 2, 3]


def test_augmented_pictures_are_the_same_after_a_restart_and_others_in_each_epoch(folder: Path) -> None:
    content = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps({**content, "padding": 2}))
    whole, first, second = (PlainTraining(folder, 0) for _ in range(3))
    expected = list(whole.epochs(2))
    begun = list(first.epochs(1))
    first.save(folder / "state.pt")
    second.load(folder / "state.pt")
    assert begun + list(second.epochs(2)) == expected
    seen = []
    for epoch in (0, 0, 1):
        whole.epoch = epoch
        seen.append(torch.cat([inputs for inputs, _ in whole._batches()]))
    assert torch.equal(seen[0], seen[1]) and not torch.equal(seen[0], seen[2])
    assert seen[0].shape == (256, 1, 28, 28)


@pytest.mark.slow
def test_fleet_trains_a_trial_to_the_very_accuracies_of_the_plain_loop(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps({**content, "rungs": [1, 2]}))
    plan = Plan.read(folder)
    assert searched(FLEET, folder, 120) is not None
    found = epochs_of(FLEET, folder)
    assert {each.trial for each in found} == set(range(3))
    lengths = {trial: max(each.epoch for each in found if each.trial == trial) for trial in range(3)}
    wanted = decided(FLEET, folder)
    assert wanted is not None and wanted.keys() == lengths.keys()
    assert all(1 <= wanted[trial] <= lengths[trial] for trial in wanted)
    for trial in range(len(plan.trials)):
        mine = [each.accuracy for each in found if each.trial == trial]
        assert mine == list(PlainTraining(folder, trial).epochs(len(mine)))


def test_figures_follow_from_a_log() -> None:
    log = [(0, 1, 0.5), (1, 1, 0.6), (1, 1, 0.6), (1, 2, 0.8), (1, 3, 0.7)]
    epochs = tuple(EpochDone(*each, seconds=2.0, unix=100.0 + number) for number, each in enumerate(log))
    ended = Searched(99.0, 9.0, epochs)
    assert (ended.twice, ended.best, ended.lengths) == (1, 0.7, {0: 1, 1: 3})
    wanted = Searched(99.0, 9.0, epochs, {0: 1, 1: 2})
    assert (wanted.best, wanted.lengths) == (0.8, {0: 1, 1: 2})
    assert ended.to(0.58) == (2.0, 4.0) and ended.to(0.75) == (4.0, 8.0)


def test_bars_hold_fleet_against_each_library() -> None:
    def ended(wall: float, accuracy: float) -> Searched:
        return Searched(0.0, wall, (EpochDone(0, 1, accuracy, 1.0, wall / 2),))

    found = {"fleet": [ended(5.0, 0.8)], "ray": [ended(10.0, 0.8)], "optuna": [ended(4.0, 0.85)]}
    oks = {bar["name"]: bar["ok"] for bar in measuring._bars(found)}
    assert list(oks.values()) == [True, True, True, False, False, False, True]
    table = measuring._table(found, "searches")
    assert [row[1] for row in table["rows"]] == [5.0, 10.0, 4.0] and len(table["columns"]) == len(table["rows"][0])
