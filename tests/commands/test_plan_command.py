"""`fleet plan` as a user calls it, and the sizes behind it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import nn

from fleet.machine.devices import usable_memory
from fleet.profiling.sizing import refused_on, size_of
from fleet.report.wording import readable_bytes
from fleet.session.input_checks import Room, memory_problem
from preprocess import SampleLayout

ROOT = Path(__file__).parents[2]


def fleet(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fleet", *arguments], capture_output=True, text=True, timeout=120, cwd=cwd
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


def test_a_plan_gives_no_device_that_preprocessors_cannot_feed() -> None:
    rates = {"mlp-128": {1: 100.0}, "mlp-256-128": {1: 100.0}}
    rehearse = json.dumps({"rates": rates, "preprocessors": {1: 150.0, 2: 290.0}})
    plans = {}
    for preprocessors in (1, 2):
        done = fleet(
            "plan", "examples/digits.yaml", "--json", "--cluster", "1x4", "--set", f"rehearse={rehearse}",
            "--set", f"resources.preprocessors={preprocessors}",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        plans[preprocessors] = json.loads(done.stdout)["jobs"]["mlp-128"]["rates"]
    assert (plans[1][0], max(plans[1]), max(plans[2])) == (100.0, 150.0, min(290.0, max(plans[2])))
    assert plans[2][1] > 150.0


def test_a_plan_counts_with_what_an_earlier_start_measured(tmp_path: Path) -> None:
    """Two seeds of one data set: preprocessors are slow until its samples are kept."""
    rates = {"mlp-128": {1: 100.0}, "mlp-256-128": {1: 100.0}}
    spec = {"rehearse": json.dumps({"rates": rates}), "name": "fed"}
    settings = [part for key, value in spec.items() for part in ("--set", f"{key}={value}")]
    folder = tmp_path / "runs" / "fed"
    folder.mkdir(parents=True)
    plans = []
    for counts, of_new in (({"1": 5000.0}, 40.0), ({}, 0.0)):
        made = {"t": 0.0, "event": "preprocessors", "counts": counts, "of_data": {"digits": 5000.0}}
        (folder / "journal.jsonl").write_text(json.dumps(made | {"of_new": {"digits": of_new}}) + "\n")
        done = fleet("plan", str(ROOT / "examples/digits.yaml"), "--json", *settings, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        plans.append(json.loads(done.stdout))
    slow, unknown = plans
    assert slow["jobs"]["mlp-128"]["fed"] == {"first": 40.0, "later": 5000.0}
    assert unknown["jobs"]["mlp-128"]["fed"] is None
    assert slow["predicted_seconds"] > unknown["predicted_seconds"]


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
    assert size.cpu_bytes(3) - size.cpu_bytes(2) == 4 * weights


def test_a_network_whose_constructor_looks_at_numbers_is_sized_like_another() -> None:
    class Looking(_Task):
        def model(self) -> nn.Module:
            one, same = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
            same.weight = one.weight
            same.register_buffer("mean", torch.tensor(one.weight.mean().item()))
            return nn.Sequential(super().model(), one, same)

    size, plain = (size_of(task, SampleLayout((3, 4), "float32")) for task in (Looking(), _Task()))
    assert size.parameters == plain.parameters + 9, "one weight that two layers share"
    assert (size.parameter_bytes, size.buffer_bytes) == (plain.parameter_bytes + 36, 4)
    assert size.operations is not None and plain.operations is not None and size.operations > plain.operations


def test_gradients_of_all_workers_leave_an_accelerator_for_the_host() -> None:
    class Normed(_Task):
        def model(self) -> nn.Module:
            model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.BatchNorm1d(3))
            model[1].bias.requires_grad_(False)
            return model

    size = size_of(Normed(), SampleLayout((3, 4), "float32"))
    trained, buffers = 4 * (36 + 6), 4 * (3 + 3) + 8
    assert (size.gradient_bytes, size.buffer_bytes) == (trained, buffers)
    assert size.device_bytes(9) - size.device_bytes(8) == buffers, "a worker's gradients do not stay there"
    assert size.host_bytes(9) == 9 * 256, "torch rounds them up to a power of two"
    assert size.cpu_bytes(9) == size.device_bytes(9) + 9 * trained


def test_buckets_of_the_first_step_stay_in_the_host_s_memory() -> None:
    class Large(_Task):
        def model(self) -> nn.Module:
            return nn.Sequential(nn.Flatten(), *(nn.Linear(1200, 1200, bias=False) for _ in range(5)))

    mebi = 2**20
    size = size_of(Large(), SampleLayout((1200,), "float32"))
    assert size.gradient_bytes == 5 * 5_760_000  # 27.5 MiB at first, in 32; then 22 there, and 5.5 in 8
    assert size.host_bytes(3) == 3 * (32 + 8) * mebi


def test_a_model_that_refuses_the_meta_device_is_sized_by_its_parameters() -> None:
    size = size_of(_Refusing(), SampleLayout((3, 4), "float32"))
    assert size.parameters == 1500 and size.operations is None and size.activation_bytes is None


@pytest.mark.parametrize(
    ("layer", "refused"),
    [
        (nn.ReflectionPad2d(1), ("reflection_pad2d_backward",)),
        (nn.Upsample(scale_factor=2, mode="bicubic"), ("upsample_bicubic2d_backward",)),
        (nn.ReplicationPad2d(1), ()),  # torch writes this one out where equal bits are asked for
        (nn.Upsample(scale_factor=2, mode="bilinear"), ()),
        (nn.AdaptiveAvgPool2d(1), ()),  # a mean
    ],
)
def test_operators_that_gpus_refuse_are_found_without_one(layer: nn.Module, refused: tuple[str, ...]) -> None:
    class Layered(_Task):
        def model(self) -> nn.Module:
            return nn.Sequential(nn.Conv2d(3, 4, 1), layer, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(4, 3))

    size = size_of(Layered(), SampleLayout((3, 6, 6), "float32"))
    assert size.operations is not None
    assert size.nondeterministic == ("adaptive_max_pool2d_backward", *refused)
    found = refused_on("cuda", "a", size)
    assert len(found) == 1 and "job a uses adaptive_max_pool2d_backward" in found[0]
    assert refused_on("cpu", "a", size) == [] and refused_on("cuda", "a", replace(size, nondeterministic=())) == []


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        (lambda model, batch: model(batch[0]), "will fail at its first step: the loss is a tensor of shape (2, 5)"),
        (lambda model, batch: model(batch[0]).detach().sum(), "will fail at its first step: the loss does not depend"),
        (
            lambda model, batch: model(batch[0][:, 1:]).sum(),
            "may fail at its first step, as it does without data: Runt",
        ),
        (lambda model, batch: model(batch[2]).sum(), "as it does without data: IndexError: tuple index out of range"),
        (lambda model, batch: model(batch[0]).sum().item() or 0.5, ""),  # nobody knows: here are no numbers
        (lambda model, batch: model(batch[0][batch[0] > 0]).sum(), ""),
        (lambda model, batch: model(batch[0]).sum(), ""),
    ],
)
def test_what_fails_at_the_first_step_is_found_without_training(loss: Callable[..., Any], told: str) -> None:
    class Lossy(_Task):
        batch_size = 2

        def model(self) -> nn.Module:
            return nn.Linear(4, 5)

        def loss(self, model: nn.Module, batch: Any) -> Any:
            return loss(model, batch)

    size = size_of(Lossy(), SampleLayout((4,), "float32"))
    assert told in size.unfit and bool(size.unfit) == bool(told)
    expected = [f"job a {size.unfit}"] if told else []
    assert refused_on("cpu", "a", size) == refused_on("cuda", "a", size) == expected


def test_nothing_is_said_of_what_autocast_may_mend() -> None:
    class Narrow(_Task):
        autocast: str | None = None

    assert "may fail at its first step" in size_of(Narrow(), SampleLayout((3, 5), "float32")).unfit
    Narrow.autocast = "bfloat16"
    assert size_of(Narrow(), SampleLayout((3, 5), "float32")).unfit == ""


def test_memory_problems_name_jobs_and_mends() -> None:
    sizes = {"big": size_of(_Task(), SampleLayout((3, 4), "float32"))}
    need = sizes["big"].cpu_bytes(2)
    assert memory_problem(sizes, {"big": 2}, Room(1, need)) is None
    too_small = memory_problem(sizes, {"big": 2}, Room(1, need - 1))
    assert too_small is not None and "big" in too_small.text and readable_bytes(need) in too_small.text
    both = memory_problem({"a": sizes["big"], "b": sizes["big"]}, {"a": 2, "b": 2}, Room(2, 2 * need - 1))
    assert both is not None and "at most 1 trainers" in both.text


def test_a_job_fits_an_accelerator_and_its_host_apart() -> None:
    size = size_of(_Task(), SampleLayout((3, 4), "float32"))
    sizes, workers = {"wide": size}, {"wide": 1000}
    device, host = size.device_bytes(1000), size.host_bytes(1000)
    assert device < 10 * size.parameter_bytes < host
    assert memory_problem(sizes, workers, Room(4, host, device)) is None
    small = memory_problem(sizes, workers, Room(4, host, device - 1))
    assert small is not None and "a device has" in small.text and "memory_gib" not in small.text
    shared = memory_problem(sizes, workers, Room(4, host - 1, device))
    assert shared is not None and "gradients of its virtual workers, which leave the device" in shared.text
    assert "fewer virtual_workers" in shared.text and readable_bytes(host) in shared.text
    many = memory_problem({"a": size, "b": size}, {"a": 1000, "b": 1000}, Room(2, 2 * host - 1, device))
    assert many is not None and "at most 1 trainers a node" in many.text


def test_a_control_group_limits_the_memory_of_a_node(tmp_path: Path) -> None:
    whole = psutil.virtual_memory().total
    own = tmp_path / "cgroup"
    for line, limit in (("0::/job/step", "job/memory.max"), ("7:cpu,memory:/job/step", "memory/memory.limit_in_bytes")):
        own.write_text(f"3:cpuset:/other\n{line}\n")
        groups = tmp_path / limit.replace("/", "-")
        assert usable_memory(groups, own) == whole, "there are no such groups"
        (groups / limit).parent.mkdir(parents=True)
        for text, allowed in (("12345678\n", 12345678), ("max\n", whole), (f"{2**63 - 4096}\n", whole)):
            (groups / limit).write_text(text)
            assert usable_memory(groups, own) == allowed
    assert usable_memory(own=tmp_path / "none") == whole
