"""A run that begins on two nodes, goes on on three and ends on one has the bits of one that nobody disturbed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.virtual_slurm import VirtualSlurm
from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import Ensemble, RunFolder, cnn, counting, mlp, write_ensemble
from tests.live.support.processes import FLEET, run
from tests.slurm.support.waiting import wait_for

Submit = Callable[..., Any]
EPOCHS = 12  # more than pass the gate in two jobs


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    jobs = [{**job, "stop": {"epochs": EPOCHS}} for job in (mlp(), cnn(), counting())]
    return write_ensemble(tmp_path_factory.mktemp("changing"), jobs)


def cancelled_after_an_epoch(
    nodes: int, submit: Submit, slurm: VirtualSlurm, ensemble: Ensemble, left: RunFolder, gate: Path
) -> None:
    """Submit on so many nodes, and cancel the job when it has trained an epoch more."""
    before = len(left.events("epoch"))
    given = submit(nodes, of=ensemble, GATE=str(gate), GATE_AFTER="1")
    wait_for(lambda: len(left.events("epoch")) > before, lambda: f"an epoch on {nodes} nodes:\n{given.log}")
    sessions = len(left.events("stopping"))
    slurm.call("scancel", given.job)
    wait_for(lambda: len(left.events("stopping")) > sessions, lambda: f"the run to be asked to stop:\n{given.log}")
    gate.touch()
    slurm.wait(given.job, "CANCELLED", "COMPLETED", "FAILED")


@pytest.mark.slow
def test_two_nodes_then_three_then_one(
    submit: Submit, slurm: VirtualSlurm, longer: Ensemble, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    left = longer.left(request.node.name)
    for number, nodes in enumerate((2, 3)):
        cancelled_after_an_epoch(nodes, submit, slurm, longer, left, tmp_path / f"gate-{number}")
        assert left.summary["status"] == "stopped"
    last = submit(1, of=longer)
    slurm.wait(last.job, "COMPLETED")
    assert [len({rank["host"] for rank in event["ranks"]}) for event in left.events("cluster")] == [2, 3, 1]
    assert [len(event["devices_per_node"]) for event in left.events("cluster")] == [2, 3, 1]

    alone = run(longer.plain("alone"), longer.folder)
    assert alone.code == 0, alone.output
    assert left.summary["status"] == "done", last.log
    same = run([*FLEET, "compare", str(left.path), str(longer.left("alone").path)], longer.folder)
    assert same.code == 0, same.output
    jobs = ("mlp", "cnn", "count")
    assert_same_bits(final_states(left, jobs), final_states(longer.left("alone"), jobs))
