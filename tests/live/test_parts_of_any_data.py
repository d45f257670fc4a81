"""Folds of samples that are no images: of a task's own data set, and of a section whose samples have any shape."""

from __future__ import annotations

from typing import Any

import pytest

from tests.live.support.ensembles import RunFolder, write_ensemble
from tests.live.support.processes import FLEET, run

JOBS = ("own-fold-0", "own-fold-1", "read-fold-2", "few")
RAGGED = "tests.live.support.ragged"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """On a ring that holds less than a step of some of them passes by."""
    folder = tmp_path_factory.mktemp("any")
    own: dict[str, Any] = {"name": "own", "task": "parts:NothingHeldOut", "folds": 2, "virtual_workers": 4}
    reader = {"model": {"name": f"{RAGGED}:Reader", "arguments": {"width": 6}}, "data": "sentences"}
    optimizer = {"name": "AdamW", "arguments": {"lr": 0.02}}
    jobs = [
        own,
        {"name": "read-fold-2", "folds": 3, "fold": 2, "metrics": ["accuracy"], "optimizer": optimizer, **reader},
        {
            "name": "few",
            "subset": [1, 30, 31, 35, 49],
            "virtual_workers": 3,
            "batch_size": 1,
            "optimizer": optimizer,
            **reader,
        },
    ]
    sentences = {
        "train": {"source": f"{RAGGED}:Sentences", "arguments": {"count": 50}},
        "collate": {"name": "pad", "arguments": {"mask": True}},
    }
    ensemble = write_ensemble(
        folder, jobs, measured=False, data={"sentences": sentences},
        defaults={"virtual_workers": 2, "batch_size": 4, "stop": {"epochs": 3}},
        resources={"trainers": 3, "device": "cpu", "ring_samples": 8, "slot_samples": 4},
    )  # fmt: skip
    ended = run(ensemble.plain("run"), folder)
    assert ended.code == 0, ended.output
    return ensemble.left("run")


def test_folds_are_evaluated(trained: RunFolder) -> None:
    measured = {name: set(job["metrics"]) for name, job in trained.summary["jobs"].items()}
    fold = {"loss", "test_loss", "accuracy"}
    assert measured == {"own-fold-0": fold, "own-fold-1": fold, "read-fold-2": fold, "few": {"loss"}}


@pytest.mark.parametrize(
    "job", ["read-fold-2", *(pytest.param(job, marks=pytest.mark.slow) for job in (*JOBS[:2], "few"))]
)
def test_they_have_the_bits_of_plain_ddp_on_their_own_samples(trained: RunFolder, job: str) -> None:
    ended = run([*FLEET, "replay", str(trained.path), job, "--ddp"], trained.path.parent)
    assert ended.code == 0 and "equal: every bit" in ended.output, ended.output
