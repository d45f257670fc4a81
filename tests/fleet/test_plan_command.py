"""`fleet plan` as a user calls it, and the sizes behind it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from fleet.profiling.sizing import memory_problem, readable, size_of
from preprocess import SampleLayout

ROOT = Path(__file__).parents[2]


def fleet(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fleet", *arguments], capture_output=True, text=True, timeout=120, cwd=ROOT
    )


@pytest.mark.slow
def test_the_digits_are_planned_without_training(tmp_path: Path) -> None:
    done = fleet("plan", "examples/digits.yaml", "--json", "--cluster", "2x2")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["cluster"]["devices_per_node"] == [2, 2]
    assert len(plan["flotillas"]) >= 2
    assert {job for flotilla in plan["flotillas"] for job in flotilla["allocation"]} == set(plan["jobs"])
    assert plan["predicted_seconds"] > 0 and plan["problems"] == []
    assert all(job["parameters"] > 0 and job["memory_bytes"] > 0 for job in plan["jobs"].values())


def test_the_table_names_every_job_and_where_rates_come_from() -> None:
    done = fleet("plan", "examples/digits.yaml")
    assert done.returncode == 0, done.stderr
    assert "densenet-1-2-2" in done.stdout and "fleet profile" in done.stdout


def test_what_a_run_would_refuse_a_plan_refuses() -> None:
    done = fleet("plan", "examples/digits.yaml", "--set", "resources.trainers=1000")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "virtual workers" in done.stderr
    assert fleet("plan", "examples/none.yaml").returncode == 2
    shape = fleet("plan", "examples/digits.yaml", "--cluster", "threexfour")
    assert shape.returncode == 2 and "3x4" in shape.stderr


class _Task:
    batch_size = 5

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(12, 100, bias=False), nn.ReLU(), nn.Linear(100, 3, bias=False))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters())

    def loss(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])


class _Refusing(_Task):
    def loss(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        raise RuntimeError("not on meta")


def test_sizes_by_hand() -> None:
    size = size_of(_Task(), SampleLayout((3, 4), "float32"))
    weights = 12 * 100 + 100 * 3
    assert size.parameters == weights and size.parameter_bytes == 4 * weights
    assert size.optimizer_bytes >= 2 * 4 * weights  # two moments, and the step counters
    # Forward 2 a weight and sample; backward as much for the weights, and for the inputs of all but the first layer.
    assert size.operations == 2 * (2 * weights + 300)
    assert size.activation_bytes is not None and size.activation_bytes >= 5 * (12 + 100) * 4
    assert size.device_bytes(3) - size.device_bytes(2) == 4 * weights


def test_a_model_that_refuses_the_meta_device_is_sized_by_its_parameters() -> None:
    size = size_of(_Refusing(), SampleLayout((3, 4), "float32"))
    assert size.parameters == 1500 and size.operations is None and size.activation_bytes is None


def test_memory_problems_name_jobs_and_mends() -> None:
    sizes = {"big": size_of(_Task(), SampleLayout((3, 4), "float32"))}
    need = sizes["big"].device_bytes(2)
    assert memory_problem(sizes, {"big": 2}, 1, need, need) is None
    too_small = memory_problem(sizes, {"big": 2}, 1, need - 1, None)
    assert too_small is not None and "big" in too_small.text and readable(need) in too_small.text
    both = memory_problem({"a": sizes["big"], "b": sizes["big"]}, {"a": 2, "b": 2}, 2, need, 2 * need - 1)
    assert both is not None and "at most 1 trainers" in both.text
