"""How many held-out samples a network takes at once is the job's to say, and changes no weight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trainers
from tests.live.support import parts
from tests.live.support.ensembles import BATCH, WORKERS, mlp, write_ensemble
from tests.live.support.processes import run

RING = 16  # holds two steps, and not all held-out samples


def told_in(file: Path) -> dict[str, Any]:
    return {"name": "together", "of": "parts:together", "arguments": {"file": str(file)}}


def test_held_out_samples_come_as_many_at_once_as_a_job_says(tmp_path: Path) -> None:
    sizes = {"step": None, "few": 3, "all": parts.HELD_OUT}
    jobs = [
        mlp(name, evaluation_batch_size=size, metrics=["accuracy", told_in(tmp_path / name)])
        for name, size in sizes.items()
    ]
    ensemble = write_ensemble(
        tmp_path, jobs, resources={"trainers": 2, "device": "cpu", "ring_samples": RING, "slot_samples": 8}
    )
    ended = run(ensemble.plain("run"), tmp_path)
    assert ended.code == 0, ended.output
    summary = ensemble.left("run").summary["jobs"]
    for name, size in sizes.items():
        batches = -(-parts.HELD_OUT // (size or WORKERS * BATCH))
        files = [file for file in tmp_path.glob(f"{name}-*") if file.name != f"{name}-0"]  # rank 0 tries it beforehand
        told = [int(line) for file in files for line in file.read_text().split()]
        epochs = summary[name]["epochs"]
        assert (sum(told), len(told)) == (parts.HELD_OUT * epochs, batches * epochs), name
        assert summary[name]["metrics"]["accuracy"] == summary["step"]["metrics"]["accuracy"]
        saved, other = (trainers.read(summary[each]["checkpoint"]) for each in (name, "step"))
        assert all((saved.parameters[key] == other.parameters[key]).all() for key in other.parameters), name
