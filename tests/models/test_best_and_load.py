"""Networks are listed by their best values, and loaded as one module of mean probabilities."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

import fleet
from fleet.commands.cli import app
from fleet.commands.results import COLUMNS
from fleet.models.errors import ModelsError
from fleet.models.load import Ensemble
from fleet.models.members import BestValue, read_members
from tests.live.support import parts
from tests.live.support.ensembles import RunFolder

OLD_RUN = Path(__file__).parents[1] / "live" / "old_runs" / "first" / "stopped"


def best(*words: object) -> Result:
    return CliRunner().invoke(app, ["best", *(str(word) for word in words)])


def listed(*words: object) -> list[dict[str, str]]:
    done = best(*words, "--csv")
    assert done.exit_code == 0, done.output
    return list(csv.DictReader(io.StringIO(done.output)))


def test_the_table_has_a_line_for_each_network_the_best_first(trained: RunFolder) -> None:
    rows = listed(trained.path)
    assert [*rows[0]] == list(COLUMNS) and len(rows) == 5
    values = [float(row["value"]) for row in rows]
    assert values == sorted(values, reverse=True)
    for row in rows:
        told = [event["metrics"]["accuracy"] for event in trained.events("epoch", row["job"])]
        assert float(row["value"]) == max(told) and int(row["epoch"]) == told.index(max(told)) + 1
        assert Path(row["checkpoint"]).is_file() and row["checkpoint_epoch"] == row["epoch"]
    assert [row["job"] for row in listed(trained.path, "--top", "2")] == [row["job"] for row in rows[:2]]


def test_the_summary_names_each_networks_best_checkpoint(trained: RunFolder) -> None:
    members = read_members(trained.path)
    order = members.order()
    assert (order.metric, order.higher, order.last) == ("accuracy", True, False)
    for member in members.all:
        told, kept = trained.summary["jobs"][member.name]["best"], member.kept
        assert kept is not None and told == {
            "metric": "accuracy", "value": kept.best.value, "epoch": kept.best.epoch, "path": str(kept.path),
        }  # fmt: skip
        assert Path(told["path"]).is_file() and member.best(order) == BestValue(told["value"], told["epoch"])


def test_by_a_loss_the_least_is_the_best(trained: RunFolder) -> None:
    told = json.loads(best(trained.path, "--metric", "test_loss", "--json").output)
    assert [row["value"] for row in told] == sorted(row["value"] for row in told)


def test_a_run_that_stands_still_in_its_middle_is_listed_and_left_alone() -> None:
    before = {path: path.stat().st_mtime_ns for path in OLD_RUN.rglob("*")}
    done = best(OLD_RUN)
    assert before == {path: path.stat().st_mtime_ns for path in OLD_RUN.rglob("*")}
    assert done.exit_code == 0, done.output


def test_what_cannot_be_listed_is_told_in_words(trained: RunFolder, tmp_path: Path) -> None:
    for words, text in (((tmp_path,), "holds no run"), ((trained.path, "--metric", "f1"), "they have accuracy, loss")):
        done = best(*words)
        assert done.exit_code == 2 and text in done.output, done.output


def test_an_ensemble_gives_the_mean_of_its_networks_probabilities(trained: RunFolder) -> None:
    pictures = parts.Pictures(train=False)
    inputs = torch.stack([torch.from_numpy(pictures[i][0]) for i in range(9)])
    ensemble = fleet.load(trained.path)
    assert isinstance(ensemble, Ensemble) and len(ensemble.names) == 5 and not ensemble.training
    together = ensemble(inputs)
    each = [ensemble.member(index, inputs) for index in range(5)]
    assert torch.allclose(together, torch.stack(each).mean(dim=0)) and together.shape == (9, parts.CLASSES)
    assert torch.allclose(together.sum(dim=1), torch.ones(9))
    chosen = [row["job"] for row in listed(trained.path, "--top", "2")]
    assert list(fleet.load(trained.path, members="best:2").names) == chosen
    assert fleet.load(trained.path, members=["cnn", "mlp"]).names == ("cnn", "mlp")


def test_loading_leaves_random_numbers_alone(trained: RunFolder) -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    fleet.load(trained.path, members=["mlp"], checkpoint="last")
    assert torch.equal(torch.rand(1), expected)


def test_another_network_than_the_trained_one_is_refused(trained: RunFolder, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained.path, folder)
    file = folder / "ensemble.json"
    content = json.loads(file.read_text())
    (job,) = (job for job in content["spec"]["jobs"] if job["name"] == "mlp")
    job["model"]["arguments"]["widths"] = [17]
    file.write_text(json.dumps(content))
    with pytest.raises(ModelsError, match="use the code with which the run was trained"):
        fleet.load(folder, members=["mlp"])
    with pytest.raises(ModelsError, match="did you mean mlp"):
        fleet.load(folder, members=["mpl"])
    with pytest.raises(ModelsError, match="choose 'best' or 'last'"):
        fleet.load(folder, checkpoint="first")


def test_importing_fleet_loads_no_torch() -> None:
    code = "import fleet, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_an_epoch_that_the_journal_lost_is_told_by_the_checkpoint(trained: RunFolder, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained.path, folder)
    lines = (folder / "journal.jsonl").read_text().splitlines(keepends=True)
    is_lost = lambda line: '"event":"epoch"' in line and '"job":"mlp","epoch":2' in line
    assert sum(map(is_lost, lines)) == 1
    (folder / "journal.jsonl").write_text("".join(line for line in lines if not is_lost(line)))
    assert read_members(folder).of("mlp").history == read_members(trained.path).of("mlp").history
