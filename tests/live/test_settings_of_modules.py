"""Modules set things for the whole process, and networks of one class count in it; each has its own bits still."""

from __future__ import annotations

import pytest

from tests.live.support import parts
from tests.live.support.ensembles import WELL_FED, RunFolder, write_ensemble
from tests.live.support.processes import FLEET, run

MODULE = f"""
import random
import numpy as np, torch
from trainers.zoo import MLP

random.seed(7), np.random.seed(7), torch.manual_seed(7)
torch.backends.cudnn.benchmark = True
torch.backends.cuda.matmul.allow_tf32 = True
torch.set_num_threads(torch.get_num_threads() + 1)
torch.use_deterministic_algorithms(False)
torch.set_grad_enabled(False)

class Net(MLP):
    calls = 0

    def __init__(self, width):
        torch.backends.cudnn.deterministic = False
        torch.manual_seed(torch.initial_seed() + width)
        super().__init__({parts.SIDE**2}, [width], {parts.CLASSES}, dropout=0.2)

    def forward(self, images):
        Net.calls += 1
        return super().forward(images) * min(1.0, 0.05 * Net.calls)

STEPS = 0

def warming(outputs, targets):
    global STEPS
    STEPS += 1
    return torch.nn.functional.cross_entropy(outputs, targets) * min(1.0, 0.02 * STEPS)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Two networks of the module; one moves to both trainers, of which each has imported it for another."""
    folder = tmp_path_factory.mktemp("settings")
    (folder / "scripted.py").write_text(MODULE)
    jobs = [
        {
            "name": name,
            "model": {"name": "scripted:Net", "arguments": {"width": width}},
            "loss": {"name": "scripted:warming"},
            "stop": {"epochs": epochs},
        }
        for name, width, epochs in (("short", 8, 1), ("long", 16, 4))
    ]
    ensemble = write_ensemble(folder, jobs, rates=WELL_FED)
    ended = run(ensemble.plain("run", "--trainers", "2"), folder)
    assert ended.code == 0, ended.output
    return ensemble.left("run")


def test_the_networks_move_as_others_do(trained: RunFolder) -> None:
    widths = {len(event["devices"]) for event in trained.events("started", "long")}
    assert widths == {1, 2} or widths == {2}
    assert all(record["status"] == "done" for record in trained.summary["jobs"].values())


@pytest.mark.parametrize("job", ["short", "long"])
def test_each_has_the_bits_of_stock_ddp(trained: RunFolder, job: str) -> None:
    ended = run([*FLEET, "replay", str(trained.path), job, "--ddp"], trained.path.parent)
    assert ended.code == 0 and "equal: every bit" in ended.output, ended.output
