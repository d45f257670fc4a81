"""Metrics of real runs, against plain torch and torchmetrics on the whole held-out set."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from typer.testing import CliRunner

import fleet
from benchmarks.numbered import measured_networks as own
from benchmarks.numbered import metrics as numbered
from fleet.commands.cli import app
from fleet.models.members import read_members
from fleet.models.results import read_results
from tests.journals import read_lines
from tests.run.support.processes import FLEET, ROOT, run
from trainers import newest_file, read

MODULE = own.__name__
SGD = {"name": "SGD", "arguments": {"lr": 0.3}}


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Runs a spec of jobs on the command line; gives its directory."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))

    def run_it(jobs: list[dict[str, Any]], *options: str, **more: Any) -> Path:
        spec = {**numbered._spec("s", jobs), **more}
        (tmp_path / "s.yaml").write_text(yaml.safe_dump(spec))
        ended = run([*FLEET, "run", "s.yaml", "--out", "out", *options], tmp_path)
        assert ended.code == 0, ended.output
        return tmp_path / "out"

    return run_it


def test_padded_sequences_and_a_metric_of_nothing(finished: Callable[..., Path]) -> None:
    nobody = {"name": "nobody", "of": f"{MODULE}:nobody", "better": "higher"}
    common = {"data": "tags", "model": f"{MODULE}:Tagger", "metrics": ["accuracy", nobody], "optimizer": SGD}
    stop = {"epochs": 3, "target": {"nobody": 0.5}, "patience": 1, "monitor": "nobody"}
    out = finished([{"name": f"by-{n}", "evaluation_batch_size": n, "stop": stop, **common} for n in (1, 96)])
    told = json.loads((out / "run.json").read_text())["jobs"]
    tagger = own.Tagger()
    newest = newest_file(out / "checkpoints" / "by-1")
    assert newest is not None
    tagger.load_state_dict(read(newest).parameters)
    with torch.no_grad():
        pairs = [(tagger(ids[None]).argmax(1)[0] == tags) for ids, tags in own.Tags(False).samples]
    right = float(torch.cat(pairs).double().mean())
    for job in told.values():
        assert job["metrics"]["accuracy"] == pytest.approx(right, rel=1e-9)
        assert job["metrics"]["nobody"] is None and job["epochs"] == 3
    with open(out / "metrics.csv") as file:
        assert {row["nobody"] for row in csv.DictReader(file)} == {""}


def test_a_searchs_winner_wins_everywhere(finished: Callable[..., Path]) -> None:
    job = {
        "data": "index", "model": f"{MODULE}:Net", "metrics": ["accuracy", f"{MODULE}:found"], "stop": {"epochs": 3},
        "batch_size": 30, "optimizer": SGD,
    }  # fmt: skip
    search = {
        "name": "t-{trial}", "metric": "found", "sampler": "grid", "width": 1, "job": job,
        "over": {"loss": {"choice": ["cross_entropy", f"{MODULE}:rare_loss"]}},
    }  # fmt: skip
    out = finished([], search=search, data=numbered._spec("s", [job])["data"])
    best = json.loads((out / "run.json").read_text())["search"]["best"]
    members = read_members(out)
    assert members.ranked(members.order("accuracy"))[0][0].name != best, "else this shows nothing"
    assert members.ranked()[0][0].name == members.chosen("best:1")[0].name == best
    assert read_results(out).best()["name"] == fleet.load(out, "best:1").names[0] == best
    assert best in (out / "report.html").read_text()
    listed = CliRunner().invoke(app, ["best", str(out), "--top", "1", "--csv"])
    assert listed.exit_code == 0 and listed.output.splitlines()[1].startswith(f"{best},done,found,"), listed.output


def test_a_direction_that_a_journal_does_not_tell_is_asked_for(finished: Callable[..., Path]) -> None:
    out = finished(
        [{"name": "j", "data": "index", "model": f"{MODULE}:Net", "metrics": [f"{MODULE}:wrong"], "optimizer": SGD}]
    )
    runner = CliRunner()
    refused = runner.invoke(app, ["best", str(out), "--metric", "wrong"])
    assert refused.exit_code == 2 and "--better higher or lower" in " ".join(refused.output.split())
    listed = runner.invoke(app, ["best", str(out), "--metric", "wrong", "--better", "lower", "--json"])
    values = [line["metrics"]["wrong"] for line in read_lines(out / "journal.jsonl") if line["event"] == "epoch"]
    assert listed.exit_code == 0 and json.loads(listed.output)[0]["value"] == min(values)
    assert runner.invoke(app, ["best", str(out), "--metric", "wrong", "--better", "less"]).exit_code == 2


@pytest.mark.slow
def test_metrics_of_the_whole_set_have_the_same_bits_on_any_number_of_trainers(tmp_path: Path) -> None:
    for bar in numbered._on_trainers(tmp_path):
        assert bar["ok"], bar
