"""`batch_size: largest` on accelerators whose memory ends: batches are tried, and what goes wrong costs one network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.device.rig import Rig
from tests.device.test_runs import ON_ITS_OWN, assert_same_bits
from tests.live.support.bits import final_states
from tests.live.support.ensembles import Ensemble, Job, mlp, write_ensemble
from tests.live.support.parts import TRAINING
from tests.live.support.processes import MPIEXEC, run

ROOMY = """
import torch
from torch import nn
class Roomy(nn.Module):
    '''Keeps half a megabyte of each sample for its backward pass, and has few weights.'''
    def __init__(self, above=0, fault="", parts=8):
        super().__init__()
        self.layer, self.above, self.fault, self.parts = nn.Linear(144, 10), above, fault, parts
    def forward(self, images):
        pictures = images.flatten(1)
        if self.fault and self.training and len(pictures) > self.above and images.device.type != "meta":
            if self.fault == "raise":
                raise RuntimeError("the hull leaks")
            table = pictures[:1].detach()
            return nn.functional.embedding(torch.full((len(pictures),), 7, device=images.device), table)[:, :10]
        kept = [torch.tanh(torch.tanh(pictures.repeat(1, 100) * part)) for part in range(self.parts)]
        return self.layer(sum(each.reshape(len(pictures), 100, 144).mean(1) for each in kept))
"""
RIG = {**ON_ITS_OWN, "RIG_SCHEDULE": "both-late"}


def roomy(name: str = "roomy", batch_size: object = "largest", **arguments: object) -> Job:
    model = {"name": "roomy:Roomy", "arguments": arguments}
    return {"name": name, "model": model, "batch_size": batch_size, "virtual_workers": 1, "stop": {"epochs": 1}}


def ensemble_of(folder: Path, *jobs: Job) -> Ensemble:
    made = write_ensemble(folder, jobs, resources={"device": "auto"})
    (folder / "roomy.py").write_text(ROOMY)
    return made


def chosen(ensemble: Ensemble, out: str) -> int:
    jobs = json.loads((ensemble.left(out).path / "spec.json").read_text())["jobs"]
    return int(jobs["roomy"]["batch_size"])


def test_the_largest_batch_that_fits_is_found_and_trained_with(rig: Rig, tmp_path: Path) -> None:
    made = ensemble_of(tmp_path, roomy())
    variables = {**rig.variables, **RIG, "RIG_MEGABYTES": "30"}
    ended = run(made.plain("run", "--trainers", "1"), tmp_path, **variables)
    assert ended.code == 0, ended.output
    (found,) = made.left("run").events("batch")
    batch = found["batch"]
    assert found["limit"] == "memory" and 16 < batch <= 2 * TRAINING // 3 and chosen(made, "run") == batch, found
    for out, size, code in (("written", batch, 0), ("larger", 3 * batch // 2, 1)):
        options = ("--trainers", "1", "--set", f"jobs.roomy.batch_size={size}")
        ended = run(made.plain(out, *options), tmp_path, **variables)
        assert ended.code == code, ended.output
    assert "out of memory" in ended.output, "it is the largest, but for a part"
    assert_same_bits(*(final_states(made.left(out), ("roomy",))["roomy"] for out in ("run", "written")))


@pytest.mark.slow
def test_of_kinds_with_different_memory_the_smallest_decides(rig: Rig, tmp_path: Path) -> None:
    made = ensemble_of(tmp_path, roomy(parts=16), roomy("other", {"most": 4}))
    differing = ["sh", "-c", 'RIG_MEGABYTES=$((10 + 35 * OMPI_COMM_WORLD_RANK)) exec "$@"', "sh"]
    command = [*MPIEXEC, "-n", "3", *differing, *made.plain("run", "--set", "policy=easyscale")]
    ended = run(command, tmp_path, **rig.variables, **RIG)
    assert ended.code == 0, ended.output
    found = {event["job"]: event for event in made.left("run").events("batch")}
    assert len(found["roomy"]["fits"]) == 2, found
    least, most = sorted(found["roomy"]["fits"].values())
    assert least < most and found["roomy"]["batch"] == least == chosen(made, "run")
    assert found["other"]["batch"] == 4 and found["other"]["limit"] == "most"


def test_a_network_that_goes_wrong_while_batches_are_tried_costs_itself_alone(rig: Rig, tmp_path: Path) -> None:
    made = ensemble_of(tmp_path, roomy("leaks", fault="raise"), mlp(batch_size="largest"))
    ended = run(made.plain("run", "--trainers", "2"), tmp_path, **rig.variables, **RIG)
    jobs = made.left("run").summary["jobs"]
    assert {job: result["status"] for job, result in jobs.items()} == {"leaks": "failed", "mlp": "done"}, ended.output
    assert ended.code == 1 and "the hull leaks" in jobs["leaks"]["error"]


def test_a_kernel_that_fails_while_batches_are_tried_costs_its_network_alone(rig: Rig, tmp_path: Path) -> None:
    """Its process ends with the device; the run starts again without that network."""
    made = ensemble_of(tmp_path, roomy("lookup", fault="index", above=40), mlp(batch_size="largest"))
    ended = run(made.plain("run", "--trainers", "2"), tmp_path, **rig.variables, **RIG)
    if "the same command goes on" in ended.output and ended.code not in (0, 1):
        ended = run(made.plain("run", "--trainers", "2"), tmp_path, **rig.variables, **RIG)
    jobs = made.left("run").summary["jobs"]
    assert {job: result["status"] for job, result in jobs.items()} == {"lookup": "failed", "mlp": "done"}, ended.output
    assert ended.code == 1 and "a kernel failed on rig:" in jobs["lookup"]["error"]


def test_an_error_of_larger_batches_alone_is_a_limit(rig: Rig, tmp_path: Path) -> None:
    made = ensemble_of(tmp_path, roomy(fault="raise", above=40))
    ended = run(made.plain("run", "--trainers", "1"), tmp_path, **rig.variables, **RIG)
    assert ended.code == 0, ended.output
    (found,) = made.left("run").events("batch")
    assert 35 <= found["batch"] <= 40 and found["limit"] == "RuntimeError: the hull leaks"
