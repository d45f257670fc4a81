"""`fleet submit` on a real Slurm: whatever ends a job, the next one goes on, and the bits are those of one long run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.virtual_slurm import VirtualSlurm
from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import RunFolder
from tests.slurm.support.waiting import wait_for

Submit = Callable[..., Any]
JOBS = ("mlp", "cnn", "count")


def held(submit: Submit, tmp_path: Path, nodes: int = 3, *options: str) -> tuple[Any, Path]:
    """Submit a run that stands still after its first epoch until a file is there; return it when an epoch is over."""
    gate = tmp_path / "goes-on"
    given = submit(nodes, *options, GATE=str(gate), GATE_AFTER="1")
    wait_for(lambda: bool(given.folder.events("epoch")), lambda: f"an epoch of job {given.job}:\n{given.log}")
    return given, gate


def let_it_stop(given: Any, gate: Path) -> None:
    """Let samples come again once the run knows that it is to stop."""
    wait_for(lambda: bool(given.folder.events("stopping")), lambda: f"the run to be asked to stop:\n{given.log}")
    gate.touch()


def assert_as_undisturbed(given: Any, undisturbed: RunFolder) -> None:
    assert given.folder.summary["status"] == "done", given.log
    assert_same_bits(final_states(given.folder, JOBS), final_states(undisturbed, JOBS))


@pytest.mark.slow
def test_a_submitted_run_trains_on_all_nodes(submit: Submit, slurm: VirtualSlurm, undisturbed: RunFolder) -> None:
    given = submit(3)
    slurm.wait(given.job, "COMPLETED")
    ranks = given.folder.events("cluster")[0]["ranks"]
    assert Counter(rank["host"] for rank in ranks) == {"h1": 2, "h2": 2, "h3": 2}
    assert Counter(rank["role"] == "trainer" for rank in ranks) == {True: 3, False: 3}
    assert given.folder.events("allocation")[0]["scheduler"] == "Slurm"
    assert 500 < given.folder.events("allocation")[0]["left"] <= 600
    assert_as_undisturbed(given, undisturbed)


def test_a_warning_stops_it_and_it_goes_on_by_itself(
    submit: Submit, slurm: VirtualSlurm, undisturbed: RunFolder, tmp_path: Path
) -> None:
    given, gate = held(submit, tmp_path, 2)
    slurm.call("scancel", "--batch", "--signal=USR1", given.job)
    let_it_stop(given, gate)
    slurm.wait(given.job, "COMPLETED")
    assert slurm.restarts(given.job) == 1
    assert len(given.folder.events("session")) == 2
    assert_as_undisturbed(given, undisturbed)


@pytest.mark.slow
def test_a_cancelled_job_goes_on_when_it_is_submitted_again(
    submit: Submit, slurm: VirtualSlurm, undisturbed: RunFolder, tmp_path: Path
) -> None:
    given, gate = held(submit, tmp_path)
    slurm.call("scancel", given.job)
    slurm.wait(given.job, "CANCELLED", "COMPLETED", "FAILED")
    gate.touch()
    again = slurm.call("sbatch", "--parsable", str(given.script), cwd=given.folder.path.parent)
    slurm.wait(again, "COMPLETED")
    assert_as_undisturbed(given, undisturbed)


@pytest.mark.slow
def test_it_stops_in_time_for_its_checkpoints(
    submit: Submit, slurm: VirtualSlurm, undisturbed: RunFolder, tmp_path: Path
) -> None:
    """The scheduler says when the allocation ends; nobody sends a signal."""
    options = ("--time", "2m", "--warn", "1s", "--", "--set", "checkpoints.margin=60")
    given, gate = held(submit, tmp_path, 2, *options)
    let_it_stop(given, gate)
    slurm.wait(given.job, "COMPLETED")
    assert slurm.restarts(given.job) == 1
    assert any("the allocation ends in" in warning["text"] for warning in given.folder.events("warning"))
    assert_as_undisturbed(given, undisturbed)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_that_its_time_limit_ended_goes_on_when_it_is_submitted_again(
    submit: Submit, slurm: VirtualSlurm, undisturbed: RunFolder, tmp_path: Path
) -> None:
    """It was warned, but what it does takes longer than it is given: Slurm ends it."""
    options = ("--time", "2m", "--warn", "1s", "--", "--set", "checkpoints.margin=0")
    given, gate = held(submit, tmp_path, 2, *options)
    slurm.wait(given.job, "TIMEOUT", "FAILED", "CANCELLED")
    gate.touch()
    again = slurm.call("sbatch", "--parsable", "--time=10", str(given.script), cwd=given.folder.path.parent)
    slurm.wait(again, "COMPLETED")
    assert_as_undisturbed(given, undisturbed)


@pytest.mark.slow
def test_a_node_crash_is_survived(submit: Submit, slurm: VirtualSlurm, undisturbed: RunFolder, tmp_path: Path) -> None:
    """The last of the tests: its node does not come back."""
    given, gate = held(submit, tmp_path, 2)
    slurm.crash(slurm.nodes_of(given.job)[-1])
    wait_for(lambda: slurm.restarts(given.job) >= 1, lambda: f"the requeue:\n{given.log}")
    gate.touch()
    slurm.wait(given.job, "COMPLETED")
    assert_as_undisturbed(given, undisturbed)
