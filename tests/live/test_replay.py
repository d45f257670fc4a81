"""A job of a run, trained again alone, has the run's bits; what differs is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleet.models.replay import ReplayedJob
from tests.journals import read_lines
from tests.live.support.ensembles import RunFolder, cnn, mlp, write_ensemble
from tests.live.support.processes import FLEET, Ended, run

OWN = "tests.commands.support.small_tasks"
KINDS = {"fast": 0, "slow": 1}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, pinned: dict[str, str]) -> RunFolder:
    """Networks on augmented pictures and on samples of any length, moved between trainers of two kinds."""
    folder = tmp_path_factory.mktemp("run")
    ragged: dict[str, Any] = {"name": "ragged", "task": {"name": f"{OWN}:Ragged"}, "data": None, "optimizer": None}
    jobs = [mlp(virtual_workers=3, stop={"epochs": 3}), cnn(), {**ragged, "metrics": []}]
    resources = {"trainers": 2, "device": "cpu", "ring_samples": 128, "slot_samples": 8, "kinds": KINDS}
    more: dict[str, Any] = {"determinism": "D2", "policy": {"name": "easyscale"}, "profile": {"batches": 2}}
    ensemble = write_ensemble(folder, jobs, measured=False, resources=resources, **more)
    ended = run(ensemble.plain("run"), folder, **pinned)
    assert ended.code == 0, ended.output
    return ensemble.left("run")


def replay(folder: RunFolder, job: str, *options: str, **variables: str) -> Ended:
    return run([*FLEET, "replay", str(folder.path), job, *options], folder.path.parent, **variables)


@pytest.mark.parametrize("job", ["mlp", *(pytest.param(job, marks=pytest.mark.slow) for job in ("cnn", "ragged"))])
def test_under_stock_ddp_it_has_the_bits_of_the_run(trained: RunFolder, job: str, pinned: dict[str, str]) -> None:
    ended = replay(trained, job, "--ddp", **pinned)
    assert ended.code == 0 and "equal: every bit" in ended.output, ended.output
    assert "history" not in ended.output, ended.output


@pytest.mark.slow
def test_on_any_number_of_trainers_it_has_them_too(trained: RunFolder, tmp_path: Path, pinned: dict[str, str]) -> None:
    ended = replay(trained, "mlp", "--trainers", "2", "--checkpoint", str(tmp_path / "again.h5"), **pinned)
    assert ended.code == 0 and "equal: every bit" in ended.output, ended.output
    assert (tmp_path / "again.h5").is_file()


def test_another_history_is_told_apart(trained: RunFolder, pinned: dict[str, str]) -> None:
    file = trained.path / "ensemble.json"
    content = file.read_text()
    changed = json.loads(content)
    changed["spec"]["jobs"][1]["seed"] += 1
    file.write_text(json.dumps(changed))
    try:
        ended = replay(trained, "cnn", "--trainers", "1", **pinned)
    finally:
        file.write_text(content)
    assert ended.code == 1 and "different" in ended.output, ended.output
    assert "values differ; first: epoch 1, loss: " in ended.output


def test_what_cannot_be_replayed_is_told_in_words(trained: RunFolder, tmp_path: Path) -> None:
    told = {
        "the run in": replay(trained, "mpl"),
        "did you mean mlp?": replay(trained, "mpl"),
        "holds no run": run([*FLEET, "replay", str(tmp_path), "mlp"], tmp_path),
    }
    for text, ended in told.items():
        assert ended.code == 2 and text in ended.output and "Traceback" not in ended.output, ended.output


def test_it_trains_with_the_batch_that_was_chosen_and_without_samples_that_were_skipped(trained: RunFolder) -> None:
    assert ReplayedJob.read(trained.path, "mlp").job.batch_size == 4
    journal = trained.path / "journal.jsonl"
    before = journal.read_bytes()
    skipped = {"data": "pictures", "kind": "train", "sample": 7, "substitute": 8, "epoch": 0, "reason": "r"}
    lines: list[dict[str, Any]] = [
        {"t": 1.0, "event": "batch", "job": "mlp", "batch": 24},
        {"t": 1.0, "event": "skipped", "stage": "source", "rank": 0, **skipped},
        {"t": 1.0, "event": "skipped", "stage": "transform", "rank": 0, **skipped, "sample": 9},
    ]
    try:
        with journal.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        assert len(list(read_lines(journal))) > len(lines)
        recorded = ReplayedJob.read(trained.path, "mlp")
        assert recorded.job.batch_size == 24 // 3
        assert recorded.skipped("pictures") == {"train": (7,), "held_out": ()}
    finally:
        journal.write_bytes(before)
