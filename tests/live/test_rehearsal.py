"""A rehearsal on pretend nodes: everything real but the compute."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fleet.spec import SpecTask, load
from tests.journals import read_lines
from trainers import Group, Trainer, read

SPEC = """
name: rehearsed
data:
  points:
    train: {source: "tests.commands.support.points:Points", arguments: {count: 120}}
    held_out: {source: "tests.commands.support.points:Points", arguments: {count: 30}}
defaults:
  data: points
  model: {name: "trainers.zoo:MLP", arguments: {inputs: 6, widths: [8], classes: 3}}
  optimizer: {name: SGD, arguments: {lr: 0.5}}
  loss: cross_entropy
  virtual_workers: 4
  batch_size: 5
jobs:
  - {name: slow, stop: {epochs: 2}}
  - {name: fast, stop: {epochs: 3}}
  - {name: third, stop: {epochs: 1}}
rehearse:
  time_scale: 0.05
  rates: {slow: {1: 60.0, 2: 115.0, 4: 220.0}, fast: {1: 240.0, 2: 460.0}, third: {1: 200.0}}
"""


def rehearse(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    (folder / "spec.yaml").write_text(SPEC)
    command = [sys.executable, "-m", "fleet", "run", str(folder / "spec.yaml"), "--out", str(folder / "out"), *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment)


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rehearsal")
    done = rehearse(folder, "--rehearse", "--cluster", "2x2")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_all_jobs_pass_through_the_plan(rehearsed: Path) -> None:
    run = json.loads((rehearsed / "out" / "run.json").read_text())
    assert run["status"] == "done" and run["rehearsal"] is True
    assert {name: job["epochs"] for name, job in run["jobs"].items()} == {"slow": 2, "fast": 3, "third": 1}
    assert {device for round_ in run["rounds"] for held in round_["allocation"].values() for device in held} == {
        0,
        1,
        2,
        3,
    }


def test_the_pretend_nodes_are_in_the_cluster_map(rehearsed: Path) -> None:
    (cluster,) = [event for event in read_lines(rehearsed / "out" / "journal.jsonl") if event["event"] == "cluster"]
    assert cluster["devices_per_node"] == [2, 2]
    assert len({rank["node"] for rank in cluster["ranks"] if rank["role"] == "trainer"}) == 2


def test_no_device_is_faster_than_its_rate_curve(rehearsed: Path) -> None:
    """A wait can come late, never early: the rate seen (in rehearsed seconds) is at most r(m) / time_scale."""
    most = {"slow": 220.0, "fast": 460.0 * 2, "third": 200.0 * 4}
    epochs = [event for event in read_lines(rehearsed / "out" / "journal.jsonl") if event["event"] == "epoch"]
    assert len(epochs) == 6
    for event in epochs:
        assert event["rate"] <= 1.02 * most[event["job"]] / 0.05
        assert event["metrics"]["loss"] > 0


def test_nothing_is_trained(rehearsed: Path) -> None:
    """The checkpoint of a rehearsal holds the weights that the seed gave."""
    spec = load(rehearsed / "spec.yaml")
    (path,) = (rehearsed / "out" / "checkpoints" / "slow").glob("epoch-00002-*.h5")
    saved = read(path)
    fresh = Trainer(SpecTask(spec.job("slow"), spec.data["points"]), 4, Group.alone())
    assert saved.epoch == 2 and saved.steps == 12
    for name, parameter in fresh.model.named_parameters():
        assert torch.equal(saved.parameters[name], parameter.detach())


@pytest.mark.slow
def test_a_rehearsal_without_rates_says_where_to_get_them(tmp_path: Path) -> None:
    done = rehearse(tmp_path, "--rehearse", "--cluster", "1x2", "--set", "rehearse.rates=null")
    assert done.returncode == 2
    assert "fleet profile" in done.stderr and "Traceback" not in done.stderr


def test_pretend_nodes_need_a_rehearsal(tmp_path: Path) -> None:
    done = rehearse(tmp_path, "--cluster", "2x2")
    assert done.returncode == 2 and "--rehearse" in done.stderr


@pytest.mark.slow
def test_a_real_run_does_not_go_on_with_a_rehearsal(rehearsed: Path) -> None:
    command = [sys.executable, "-m", "fleet", "run", str(rehearsed / "spec.yaml"), "--out", str(rehearsed / "out")]
    done = subprocess.run([*command, "--trainers", "2"], capture_output=True, text=True, timeout=180)
    assert done.returncode == 2 and "rehearsal" in done.stderr
