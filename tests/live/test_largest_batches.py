"""`batch_size: largest` on CPUs: a number is chosen at the first start, written down, and kept."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import WORKERS, Ensemble, cnn, mlp, write_ensemble
from tests.live.support.parts import TRAINING
from tests.live.support.processes import FLEET, run
from tests.warm.starting import RIG_FOLDER

MOST = 10
CHOSEN = {"mlp": TRAINING // WORKERS, "cnn": MOST}
UNSIZED = """
import torch
from torch import nn
class Looks(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(144, 10)
    def forward(self, images):
        found = self.layer(images.flatten(1))
        return found if float(found.detach().sum()) > 0 else -found
"""


@pytest.fixture
def ensemble(tmp_path: Path) -> Ensemble:
    return write_ensemble(tmp_path, [mlp(batch_size="largest"), cnn(batch_size={"most": MOST})])


def recorded(ensemble: Ensemble, out: str) -> dict[str, Any]:
    jobs = json.loads((ensemble.left(out).path / "spec.json").read_text())["jobs"]
    return {name: job["batch_size"] for name, job in jobs.items()}


def test_a_chosen_batch_stays_and_is_as_good_as_a_written_one(ensemble: Ensemble) -> None:
    first = run(ensemble.plain("run", "--trainers", "2"), ensemble.folder)
    assert first.code == 0, first.output
    left = ensemble.left("run")
    told = {event["job"]: (event["batch"], event["limit"]) for event in left.events("batch")}
    assert told == {"mlp": (WORKERS * CHOSEN["mlp"], "data"), "cnn": (WORKERS * MOST, "most")}
    assert f"mlp has batches of {WORKERS * CHOSEN['mlp']} samples, the largest: a step has all samples" in first.output
    assert recorded(ensemble, "run") == CHOSEN
    joining = json.loads((left.path / "ensemble.json").read_text())["spec"]["jobs"]
    assert {job["name"]: job["batch_size"] for job in joining} == CHOSEN
    options = ("--trainers", "1", "--set", "jobs.mlp.stop.epochs=2", "--set", "resources.memory_gib=0.5")
    again = run(ensemble.plain("run", *options), ensemble.folder)
    assert again.code == 0 and "batch_size: largest stands for mlp: 39, cnn: 10, as long as" in again.output
    assert len(left.events("batch")) == 2 and recorded(ensemble, "run") == CHOSEN

    spec = yaml.safe_load(ensemble.spec.read_text())
    spec["jobs"] = [{**job, "batch_size": CHOSEN[job["name"]]} for job in spec["jobs"]]
    ensemble.spec.write_text(yaml.safe_dump(spec))
    written = run(ensemble.plain("written", "--trainers", "1"), ensemble.folder)
    assert written.code == 0, written.output
    assert_same_bits(*(final_states(ensemble.left(out), tuple(CHOSEN)) for out in ("written", "run")))


def test_a_plan_says_what_the_run_will_choose(ensemble: Ensemble) -> None:
    planned = run([*FLEET, "plan", str(ensemble.spec), "--cluster", "1x2"], ensemble.folder)
    assert planned.code == 0, planned.output
    assert "batch_size: largest stands for about mlp: 39, cnn: 10" in planned.output
    as_json = json.loads(run([*FLEET, "plan", str(ensemble.spec), "--json"], ensemble.folder).output)
    assert {name: job["batch_size"] for name, job in as_json["jobs"].items()} == CHOSEN


@pytest.mark.skipif(RIG_FOLDER in os.environ, reason="accelerators are tried, so nothing needs to be told")
def test_a_network_of_which_memory_cannot_be_told_costs_itself_alone(tmp_path: Path) -> None:
    looks = {"name": "looks", "model": "unsized:Looks", "batch_size": "largest"}
    ensemble = write_ensemble(tmp_path, [looks, mlp(batch_size="largest")])
    (tmp_path / "unsized.py").write_text(UNSIZED)
    ended = run(ensemble.plain("run"), tmp_path)
    jobs = ensemble.left("run").summary["jobs"]
    assert ended.code == 1, ended.output
    assert {job: result["status"] for job, result in jobs.items()} == {"looks": "failed", "mlp": "done"}
    assert "give batch_size a number, or {most: N}" in jobs["looks"]["error"]
    again = run(ensemble.plain("run"), tmp_path)
    assert again.code == 1 and "Traceback" not in again.output, again.output


def test_a_job_that_joins_a_run_needs_a_number(ensemble: Ensemble) -> None:
    assert run(ensemble.plain("run"), ensemble.folder).code == 0
    added = ensemble.folder / "added.yaml"
    keys = yaml.safe_load(ensemble.spec.read_text())
    added.write_text(yaml.safe_dump({**keys["defaults"], **keys["jobs"][1], "name": "late"}))
    ended = run([*FLEET, "add", str(ensemble.left("run").path), str(added)], ensemble.folder)
    assert ended.code == 2 and "batch_size" in ended.output and "give the job a number" in ended.output
