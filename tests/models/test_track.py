"""A real run in a real store of MLflow: after the fact, live, again and again, and what is told where it cannot be."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fleet.commands.cli import app
from fleet.report.tracked_run import read_tracked
from fleet.report.trackers import Mlflow
from tests.live.support.ensembles import RunFolder, faulty, write_ensemble
from tests.live.support.processes import FLEET, run
from tests.models.support.families import BEST, mlp

SECONDS = 120


def tracked(directory: Path, store: Path, *options: str) -> str:
    answer = CliRunner().invoke(app, ["track", str(directory), "--to", "mlflow", "--uri", str(store), *options])
    assert answer.exit_code == 0, answer.output
    return answer.output


def runs(store: Path, experiment: str = "small") -> dict[str, Any]:
    """MLflow's runs by the network, as MLflow itself reads them; "": of all together."""
    client = Mlflow(str(store))._client
    told = client.get_experiment_by_name(experiment)
    assert told is not None
    found = client.search_runs([told.experiment_id])
    assert len({run.data.tags.get("fleet.job", "") for run in found}) == len(found)
    return {run.data.tags.get("fleet.job", ""): run for run in found}


def points(store: Path, run: Any, metric: str) -> list[tuple[int, float, int]]:
    client = Mlflow(str(store))._client
    return sorted((p.step, p.value, p.timestamp) for p in client.get_metric_history(run.info.run_id, metric))


def files(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def of_journal(folder: RunFolder, job: str, metric: str) -> list[tuple[int, float, int]]:
    epochs = folder.events("epoch", job)
    return [(e["step"], e["metrics"][metric], round(1000 * e["unix"])) for e in epochs]


@pytest.fixture(scope="module")
def store(trained: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("mlflow") / "store"
    assert f"{len(trained.summary['jobs'])} networks have begun" in tracked(trained.path, store)
    return store


def test_every_network_has_its_metrics_parameters_and_state(trained: RunFolder, store: Path) -> None:
    found = runs(store)
    jobs: Mapping[str, Any] = trained.summary["jobs"]
    assert found.keys() == {"", *jobs}
    for name in jobs:
        told = found[name]
        assert told.info.run_name == name and told.info.status == "FINISHED"
        assert told.data.tags["mlflow.parentRunId"] == found[""].info.run_id
        for metric in ("loss", "test_loss", "accuracy"):
            assert points(store, told, metric) == of_journal(trained, name, metric)
        assert told.info.start_time == round(1000 * trained.events("started", name)[0]["unix"])
        assert told.info.end_time == round(1000 * trained.events("done", name)[-1]["unix"])
    assert found["cnn"].data.params["optimizer.arguments.lr"] == "0.01"
    assert found["cnn"].data.params["model.arguments.widths"] == "[4]"
    assert found["reached"].data.tags["fleet.why"] == "target"


def test_its_files_are_named_by_path(trained: RunFolder, store: Path) -> None:
    tags = runs(store)["mlp"].data.tags
    best = trained.events("checkpoint", "mlp")[-1]["best"]
    assert Path(tags["fleet.checkpoint"]) == trained.checkpoints("mlp")[-1]
    assert tags["fleet.best.epoch"] == str(best["epoch"]) and float(tags["fleet.best.accuracy"]) == best["value"]
    assert Path(tags["fleet.best.checkpoint"]).is_file()
    assert not [name for name in files(store) if name.endswith((".pkl", ".h5", ".safetensors"))]


def test_all_together_have_the_figures_of_the_run(trained: RunFolder, store: Path) -> None:
    told = runs(store)[""]
    figures = {f"ensemble.{name}": value for name, value in trained.summary["ensemble"].items()}
    assert figures.items() <= told.data.metrics.items()
    assert told.data.metrics["networks_done"] == len(trained.summary["jobs"])
    assert told.info.status == "FINISHED" and told.data.tags["fleet.directory"] == str(trained.path)


def test_a_second_call_changes_no_byte(trained: RunFolder, store: Path) -> None:
    before = files(store)
    assert "0 runs and 0 values are new" in tracked(trained.path, store)
    assert files(store) == before


def test_what_an_interrupted_call_left_is_completed_and_nothing_doubled(trained: RunFolder, tmp_path: Path) -> None:
    part, half = tmp_path / "store", tmp_path / "half"
    shutil.copytree(trained.path, half)
    lines = (trained.path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    for count in (len(lines) // 3, len(lines) // 2, len(lines)):
        (half / "journal.jsonl").write_bytes(b"".join(lines[:count]))
        tracked(half, part)
    network = runs(part)["mlp"]
    lost = Path(network.info.artifact_uri.removeprefix("file://")).parent
    (lost / "metrics" / "accuracy").unlink()
    (lost / "tags" / "fleet.told").unlink()
    assert f"0 runs and {len(trained.events('epoch', 'mlp'))} values are new" in tracked(half, part)
    for name in trained.summary["jobs"]:
        for metric in ("loss", "accuracy"):
            assert points(part, runs(part)[name], metric) == of_journal(trained, name, metric)


def test_a_run_that_was_cut_is_told_as_one(trained: RunFolder, tmp_path: Path) -> None:
    half = tmp_path / "half"
    shutil.copytree(trained.path, half)
    lines = (trained.path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    begun = next(i for i, line in enumerate(lines) if b'"event":"epoch"' in line)
    (half / "journal.jsonl").write_bytes(b"".join(lines[: begun + 1]))
    tracked(half, tmp_path / "store")
    found = runs(tmp_path / "store")
    assert found[""].info.status == "KILLED" and found[""].data.tags["fleet.status"] == "killed"
    assert {run.info.status for name, run in found.items() if name} == {"KILLED"}


def test_exported_models_are_named(trained: RunFolder, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    assert CliRunner().invoke(app, ["export", str(trained.path), "mlp", str(file)]).exit_code == 0
    for place in (file, tmp_path):
        told = {run.job: run for run in read_tracked(trained.path, [place]).networks}
        assert told["mlp"].tags["fleet.model"] == str(file) and "fleet.model" not in told["cnn"].tags


def test_a_run_that_goes_on_is_followed_to_its_end_and_failures_are_told(tmp_path: Path) -> None:
    jobs = [mlp("fine", {"name": "SGD", "arguments": {"lr": 0.05}}, widths=[8])]
    jobs.append(faulty("broken", "raise"))
    ensemble = write_ensemble(tmp_path, [{**job, "stop": {"epochs": 3}} for job in jobs], checkpoints=BEST)
    store = tmp_path / "store"
    command = [*FLEET, "track", str(tmp_path / "run"), "--to", "mlflow", "--uri", str(store), "--follow", "--every"]
    with subprocess.Popen([*command, "0.2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as follower:
        assert follower.stderr is not None
        assert "holds no run" in follower.stderr.readline()
        ended = run(ensemble.plain("run"), tmp_path)
        assert ended.code == 1, ended.output
        output, errors = follower.communicate(timeout=SECONDS)
    assert follower.returncode == 0, errors
    assert "small is failed: 2 of 2 networks have begun" in output
    left, found = ensemble.left("run"), runs(store)
    assert points(store, found["fine"], "loss") == of_journal(left, "fine", "loss")
    failed = found["broken"]
    assert failed.info.status == "FAILED" and failed.data.tags["fleet.why"] == left.events("failed")[0]["error"]
    before = files(store)
    tracked(left.path, store)
    assert files(store) == before


def test_what_cannot_be_is_told_with_its_mend(trained: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for words, said in {
        (str(tmp_path), "--uri", str(tmp_path / "s")): "holds no run",
        (str(tmp_path), "--uri", str(tmp_path / "s"), "--follow", "--wait", "0"): "it has been so for 0 s",
        (str(trained.path), "--uri", str(tmp_path / "file")): "or name another by --uri",
        (str(trained.path), "--uri", "nonsense://x"): "or name another by --uri",
    }.items():
        answer = CliRunner().invoke(app, ["track", *words, "--to", "mlflow"])
        assert answer.exit_code == 2 and said in answer.stderr, answer.output
    assert json.loads((trained.path / "run.json").read_text())["status"] == "done"


def test_a_deleted_experiment_is_told_and_another_can_be_named(trained: RunFolder, tmp_path: Path) -> None:
    tracked(trained.path, tmp_path / "s")
    store = Mlflow(str(tmp_path / "s"))._client
    experiment = store.get_experiment_by_name("small")
    assert experiment is not None
    store.delete_experiment(experiment.experiment_id)
    words = ["track", str(trained.path), "--to", "mlflow", "--uri", str(tmp_path / "s")]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 2 and "was deleted: name another by --experiment" in answer.stderr
    tracked(trained.path, tmp_path / "s", "--experiment", "again")
    assert len(runs(tmp_path / "s", "again")) == 1 + len(trained.summary["jobs"])


def test_a_server_that_is_not_there_is_told(trained: RunFolder) -> None:
    words = ["track", str(trained.path), "--to", "mlflow", "--uri", "http://127.0.0.1:9"]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 2 and "mend that, or name another by --uri" in answer.stderr, answer.output


def test_without_mlflow_it_says_what_to_install(trained: RunFolder) -> None:
    code = "import sys; sys.modules['mlflow'] = None; from fleet.commands.cli import app; app(sys.argv[1:])"
    words = [sys.executable, "-c", code, "track", str(trained.path), "--to", "mlflow"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False, env=dict(os.environ))
    assert done.returncode == 2 and 'pip install "fleet-hpc[track]"' in done.stderr and "Traceback" not in done.stderr
