"""A run tells at its end how good its networks are together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fleet.commands.cli import app
from fleet.report.run_history import read_history
from tests.live.support import parts
from tests.live.support.ensembles import RunFolder, write_ensemble
from tests.live.support.processes import run
from tests.models.support.families import mlp

FRAGILE = """
from tests.live.support.parts import own_rank
from trainers.zoo import MLP


class OnTrainers(MLP):
    def forward(self, inputs):
        if own_rank() == 0:
            raise OSError("rank 0 is no place for me")
        return super().forward(inputs)
"""


def test_the_figures_are_those_of_predicting(trained: RunFolder) -> None:
    told = json.loads(CliRunner().invoke(app, ["predict", str(trained.path), "--json"]).output)
    assert trained.summary["ensemble"] == told["ensemble"]
    assert trained.events("ended")[-1]["ensemble"] == told["ensemble"]
    assert read_history(trained.path / "journal.jsonl").ensemble == told["ensemble"]
    accuracy = f"{100 * told['ensemble']['accuracy']:.2f} %"
    report = (trained.path / "report.html").read_text()
    assert f"on the held-out samples: accuracy {accuracy}, nll" in report


@pytest.mark.parametrize("asked", [True, False])
def test_a_run_whose_networks_cannot_predict_at_its_end_is_done(tmp_path: Path, asked: bool) -> None:
    names = ("one", "other")
    jobs = [mlp(name, {"name": "SGD", "arguments": {"lr": 0.05}}, widths=[8]) for name in names]
    for job in jobs:
        job["model"]["name"] = "fragile:OnTrainers"
    ensemble = write_ensemble(tmp_path, [{**job, "stop": {"epochs": 1}} for job in jobs])
    (tmp_path / "fragile.py").write_text(FRAGILE.replace("tests.live.support.parts", Path(parts.__file__).stem))
    ended = run(ensemble.plain("run", "--set", f"ensemble={json.dumps(asked)}"), tmp_path)
    assert ended.code == 0, ended.output
    left = ensemble.left("run")
    assert left.summary["status"] == "done" and "ensemble" not in left.summary
    assert left.events("ended")[-1]["ensemble"] == {} and "all together" not in ended.output
    told = [line for line in ended.output.splitlines() if "may fail at its first step" not in line]
    assert any("rank 0 is no place for me" in line for line in told) == asked
