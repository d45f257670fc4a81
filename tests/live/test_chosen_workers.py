"""`virtual_workers: auto`: a number is chosen at the first start, written down, and kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import Ensemble, cnn, mlp, write_ensemble
from tests.live.support.processes import FLEET, run


@pytest.fixture
def ensemble(tmp_path: Path) -> Ensemble:
    jobs = [{**job, "virtual_workers": "auto", "stop": {"epochs": 1}} for job in (mlp(), cnn())]
    return write_ensemble(tmp_path, jobs)


def recorded(ensemble: Ensemble, out: str) -> dict[str, int]:
    jobs = json.loads((ensemble.left(out).path / "spec.json").read_text())["jobs"]
    return {name: job["virtual_workers"] for name, job in jobs.items()}


def fixed_at(ensemble: Ensemble, workers: dict[str, int]) -> None:
    """Let the spec say these numbers."""
    spec = yaml.safe_load(ensemble.spec.read_text())
    spec["jobs"] = [{**job, "virtual_workers": workers[job["name"]]} for job in spec["jobs"]]
    ensemble.spec.write_text(yaml.safe_dump(spec))


def test_a_chosen_number_stays_and_is_as_good_as_a_written_one(ensemble: Ensemble) -> None:
    first = run(ensemble.plain("run", "--trainers", "3"), ensemble.folder)
    assert first.code == 0, first.output
    chosen = recorded(ensemble, "run")
    assert sum(chosen.values()) >= 3, "each of the trainers can be used"
    told = f"virtual_workers: auto stands for mlp: {chosen['mlp']}, cnn: {chosen['cnn']}"
    assert told in first.output
    again = run(ensemble.plain("run", "--trainers", "1"), ensemble.folder)
    assert again.code == 0 and told in again.output, "whatever there is to train on now"
    assert recorded(ensemble, "run") == chosen
    fixed_at(ensemble, chosen)
    written = run(ensemble.plain("written", "--trainers", "2"), ensemble.folder)
    assert written.code == 0, written.output
    assert_same_bits(*(final_states(ensemble.left(out), ("mlp", "cnn")) for out in ("written", "run")))


def test_a_job_that_joins_a_run_needs_a_number(ensemble: Ensemble) -> None:
    assert run(ensemble.plain("run", "--trainers", "2"), ensemble.folder).code == 0
    added = ensemble.folder / "added.yaml"
    keys = yaml.safe_load(ensemble.spec.read_text())
    added.write_text(yaml.safe_dump({**keys["defaults"], **keys["jobs"][0], "name": "late"}))
    ended = run([*FLEET, "add", str(ensemble.left("run").path), str(added)], ensemble.folder)
    assert ended.code == 2 and "virtual_workers" in ended.output and "give the job a number" in ended.output
