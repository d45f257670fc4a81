"""A policy that stands beside the spec drives a plan and a run, and one that is not there is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import mlp, write_ensemble
from tests.live.support.processes import FLEET, run
from tests.scheduling.test_own_policies import MODULE

JOBS = [mlp(name, seed=seed, stop={"epochs": 1}) for seed, name in enumerate(("first", "second", "third"))]


def test_a_policy_beside_the_spec_plans_and_trains(tmp_path: Path) -> None:
    (tmp_path / "plugged.py").write_text(MODULE)
    ensemble = write_ensemble(tmp_path, JOBS, policy="plugged:OneEach")
    planned = run([*FLEET, "plan", str(ensemble.spec), "--trainers", "2"], tmp_path)
    assert planned.code == 0 and "first: [0]; second: [1]" in planned.output, planned.output
    ended = run(ensemble.plain("own", "--trainers", "2"), tmp_path)
    assert ended.code == 0, ended.output
    trained = ensemble.left("own")
    assert [event["allocation"] for event in trained.events("planned")][0] == {"first": [0], "second": [1]}
    ended = run(ensemble.plain("flotilla", "--trainers", "1", "--policy", "flotilla"), tmp_path)
    assert ended.code == 0, ended.output
    names = tuple(job["name"] for job in JOBS)
    assert_same_bits(final_states(trained, names), final_states(ensemble.left("flotilla"), names))


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_policy_that_is_not_there_is_refused_with_the_nearest(command: str, tmp_path: Path) -> None:
    (tmp_path / "plugged.py").write_text(MODULE)
    ensemble = write_ensemble(tmp_path, JOBS[:1])
    ended = run([*FLEET, command, str(ensemble.spec), "--policy", "plugged:OneEech"], tmp_path)
    assert ended.code == 2 and "plugged:OneEach" in ended.output and "Traceback" not in ended.output, ended.output


def test_a_plan_that_cannot_be_carried_out_ends_the_run_with_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "plugged.py").write_text(MODULE)
    ensemble = write_ensemble(tmp_path, JOBS[:2], policy="plugged:AllOnOne")
    ended = run(ensemble.plain("run", "--trainers", "1"), tmp_path)
    assert ended.code == 1 and "Traceback" not in ended.output, ended.output
    assert "policy AllOnOne gave a bad plan: device 0 serves at most one job" in ended.output, ended.output
