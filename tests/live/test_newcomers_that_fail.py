"""A network fails on a trainer to which it comes; those that have it hear why at once, and do not wait for that one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.live.support import parts
from tests.live.support.ensembles import WELL_FED, mlp, write_ensemble
from tests.live.support.processes import run

MODULE = f"""
import os, pathlib
import torch
from trainers.zoo import MLP

FIRST = pathlib.Path(__file__).with_name("first")

def only_one_trainer(where):
    if os.environ["FAILS"] == where and int(os.environ.get("OMPI_COMM_WORLD_RANK", 0)) > 0:
        try:
            FIRST.symlink_to(str(os.getpid()))
        except FileExistsError:
            if os.readlink(FIRST) != str(os.getpid()):
                raise MemoryError("no room for the cargo")

class Net(MLP):
    def __init__(self):
        only_one_trainer("built")
        super().__init__({parts.SIDE**2}, [16], {parts.CLASSES})

class Picky(torch.optim.SGD):
    def load_state_dict(self, state):
        only_one_trainer("loaded")
        super().load_state_dict(state)

class Task:
    batch_size = 4

    def model(self):
        return Net()

    def optimizer(self, model):
        return Picky(model.parameters(), lr=0.05)

    def loss(self, model, batch):
        only_one_trainer("loaded")
        return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
"""
PATIENCE = 120
"""Seconds; a trainer that waits for another gives up after 300."""


@pytest.mark.parametrize("where", ["built", "loaded"])
def test_the_network_fails_at_once_and_the_others_go_on(where: str, tmp_path: Path) -> None:
    (tmp_path / "picky.py").write_text(MODULE)
    cargo: dict[str, Any] = {"name": "cargo", "task": {"name": "picky:Task"}, "optimizer": None, "metrics": []}
    jobs = [mlp("short", stop={"epochs": 1}), {**cargo, "stop": {"epochs": 4}}]
    ensemble = write_ensemble(tmp_path, jobs, rates=WELL_FED)
    ended = run(ensemble.plain("run", "--trainers", "2"), tmp_path, PATIENCE, FAILS=where)
    folder = ensemble.left("run")
    assert ended.code == 1, ended.output
    assert "no room for the cargo" in folder.summary["jobs"]["cargo"]["error"]
    assert folder.summary["jobs"]["short"]["status"] == "done"
    assert [len(event["devices"]) for event in folder.events("started", "cargo")] == [1, 2]
