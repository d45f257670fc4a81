"""Ranks of a run whose networks are not compiled load no compiler."""

from __future__ import annotations

from pathlib import Path

from tests.live.support.ensembles import mlp, write_ensemble
from tests.live.support.processes import run

WATCHING = """
import sys, torch
from trainers.zoo import MLP

class Watching(MLP):
    def __init__(self, **arguments):
        assert "torch._dynamo" not in sys.modules
        super().__init__(**arguments)
        for weights in self.parameters():
            torch.nn.init.normal_(weights)
        assert "torch._dynamo" not in sys.modules

    def forward(self, inputs):
        assert "torch._dynamo" not in sys.modules
        return super().forward(inputs)
"""


def test_ranks_load_torchs_compiler_for_no_network_that_is_not_compiled(started_cold: None, tmp_path: Path) -> None:
    """Rank 0 builds it with its optimizer to check the spec, and again to size it; trainers train it."""
    (tmp_path / "watching.py").write_text(WATCHING)
    job = mlp()
    ensemble = write_ensemble(tmp_path, [{**job, "model": {**job["model"], "name": "watching:Watching"}}])
    ended = run(ensemble.plain("run", "--trainers", "1"), tmp_path)
    assert ended.code == 0, ended.output
    assert ensemble.left("run").summary["jobs"]["mlp"]["status"] == "done"
