"""Scripts as people publish them become specs that run, with what the scripts say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spec.from_script.conftest import Begun, begin


def trained(begun: Begun, **stop: Any) -> dict[str, Any]:
    """Run the spec for two epochs; what its run.json says of the job."""
    out = begun.file.with_suffix("")
    words = [sys.executable, "-m", "fleet", "run", begun.file.name, "--out", out.name]
    words += ["--set", f"jobs.{begun.job.name}.stop.epochs=2"]
    done = subprocess.run(words, cwd=begun.file.parent, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads((out / "run.json").read_text())["jobs"][begun.job.name]
    return found


@pytest.fixture(scope="module")
def digits(scripts: Path) -> Begun:
    return begin(scripts, "digits_cnn.py", "--", "--lr", "0.5", "--epochs", "6")


@pytest.fixture(scope="module")
def flat(scripts: Path) -> Begun:
    return begin(scripts, "flat.py")


@pytest.fixture(scope="module")
def distributed(scripts: Path) -> Begun:
    return begin(scripts, "distributed.py", "--", "6")


def test_a_script_with_functions_and_options(digits: Begun) -> None:
    job, spec = digits.job, digits.spec
    assert job.model.name == "digits_cnn:Net" and job.loss.name == "nll_loss" and job.metrics == ("accuracy",)
    assert job.optimizer.name == "Adadelta" and job.optimizer.arguments == {"lr": 0.5}
    assert job.schedule.model_dump() == {"name": "StepLR", "each": "epoch", "arguments": {"step_size": 1, "gamma": 0.7}}
    assert (job.batch_size, job.evaluation_batch_size, job.stop.epochs, spec.seed) == (64, 1000, 6, 1)
    assert "from digits_cnn import Digits, Normalize" in digits.parts
    assert "Digits(root='data', transform=Normalize(mean=0.37, std=0.24))" in digits.parts
    assert "Digits(root='data', train=False, transform=Normalize(mean=0.37, std=0.24))" in digits.parts
    assert "digits-cnn: optimizer: Adadelta(lr=0.5)" in digits.output and "next: fleet plan" in digits.output


def test_a_script_without_functions_is_not_imported_by_its_spec(flat: Begun) -> None:
    job, spec = flat.job, flat.spec
    assert job.model.name == "flat_parts:NeuralNetwork"
    assert job.schedule.model_dump() == {"name": "CosineAnnealingLR", "each": "epoch", "arguments": {"T_max": 5}}
    assert job.loss.name == "cross_entropy" and job.loss.arguments == {"label_smoothing": 0.1}
    assert job.optimizer.arguments == {"lr": 0.01, "weight_decay": 0.05}
    assert (job.batch_size, job.stop.epochs, spec.seed) == (32, 5, 7)
    assert job.evaluation_batch_size is None, "the script's is its batch_size, too"
    assert "class Blobs(Dataset)" in flat.parts and "CLASSES = 4" in flat.parts
    assert "DataLoader" not in flat.parts and "print" not in flat.parts
    assert "importing flat.py would train" in flat.output


def test_a_script_of_many_processes(distributed: Begun) -> None:
    job, spec = distributed.job, distributed.spec
    assert spec.data["samples"].train.source == "points:Points" and spec.data["samples"].held_out is None
    assert spec.data["samples"].train.arguments == {"size": 512}
    assert (
        job.model.name == "distributed_parts:model" and job.clip_norm == 2.0 and job.metrics == ("mean_absolute_error",)
    )
    assert (job.optimizer.arguments, job.batch_size, job.stop.epochs) == ({"lr": 0.01}, 32, 6)
    assert "no held-out samples" in distributed.output


def test_their_specs_run(digits: Begun, flat: Begun, distributed: Begun) -> None:
    assert trained(digits)["metrics"]["accuracy"] > 0.5
    assert trained(flat)["metrics"]["accuracy"] > 0.5
    assert trained(distributed)["status"] == "done"
