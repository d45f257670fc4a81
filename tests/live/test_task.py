"""A user's own task class beside a network of the spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trainers
from tests.live.support.ensembles import STEPS, mlp, write_ensemble
from tests.live.support.processes import FLEET, run
from trainers.proof.comparison import compare_checkpoints

TWO = {"trainers": 2, "device": "cpu", "ring_samples": 128, "slot_samples": 8}


@pytest.mark.slow
def test_task_with_its_own_data_trains_beside_a_model(tmp_path: Path) -> None:
    plain: dict[str, Any] = {
        "name": "plain",
        "task": {"name": "parts:Plain"},
        "data": None,
        "optimizer": None,
        "metrics": [],
    }
    ensemble = write_ensemble(tmp_path, [mlp(), plain])
    ended = run(ensemble.plain("run", "--trainers", "2"), tmp_path)
    assert ended.code == 0, ended.output
    folder = ensemble.left("run")
    for job in ("mlp", "plain"):
        assert folder.summary["jobs"][job]["status"] == "done"
        assert trainers.read(folder.summary["jobs"][job]["checkpoint"]).steps == 2 * STEPS
    first, last = (event["metrics"] for event in folder.events("epoch", "plain"))
    assert last["loss"] < first["loss"], "it does not learn"
    # Once one is done the other may be formed anew, an epoch further on.
    assert len({event["stream"].partition("/epoch")[0] for event in folder.events("started")}) == 2


OWN = "tests.commands.support.small_tasks"


def test_tasks_with_a_step_state_and_batches_of_their_own_have_the_bits_of_stock_ddp(tmp_path: Path) -> None:
    """They are measured, trained beside each other, stopped by nobody; samples of any length go through the ring."""
    own: dict[str, Any] = {"data": None, "optimizer": None, "metrics": []}
    jobs = [{"name": name.lower(), "task": {"name": f"{OWN}:{name}"}, **own} for name in ("Adversarial", "Ragged")]
    ensemble = write_ensemble(tmp_path, jobs, measured=False, profile={"when": "before", "batches": 4}, resources=TWO)
    ended = run(ensemble.plain("run", "--trainers", "2"), tmp_path)
    assert ended.code == 0, ended.output
    folder = ensemble.left("run")
    assert {event["job"] for event in folder.events("profile")} == {"adversarial", "ragged"}
    for name in ("Adversarial", "Ragged"):
        words = [f"{OWN}:{name}", "--virtual-workers", "2", "--steps", "10", "--checkpoint", f"{name}.h5", "--ddp"]
        stock = run([*FLEET, "train", *words], tmp_path)
        assert stock.code == 0, stock.output
        got = trainers.read(folder.summary["jobs"][name.lower()]["checkpoint"])
        result = compare_checkpoints(got, trainers.read(tmp_path / f"{name}.h5"))
        assert result.is_equal, result.differences[0]
    assert set(folder.summary["jobs"]["adversarial"]["metrics"]) == {"loss", "seen as real"}


@pytest.mark.parametrize(
    ("task", "says"),
    [
        ("Endless", "has collate(samples) and no largest_sample()"),
        ("Halved", "the task has no method optimizers"),
        ("Longer", "sample 1 takes"),
    ],
)
def test_a_task_that_says_half_is_refused(tmp_path: Path, task: str, says: str) -> None:
    job: dict[str, Any] = {
        "name": "half",
        "task": {"name": f"{OWN}:{task}"},
        "data": None,
        "optimizer": None,
        "metrics": [],
    }
    ended = run(write_ensemble(tmp_path, [job]).plain("run", "--trainers", "1"), tmp_path)
    assert ended.code != 0 and says in " ".join(ended.output.split())
    assert task == "Longer" or (ended.code == 2 and "Traceback" not in ended.output)
