"""CPU of `fleet plan`, command and all, for many small networks and for many deep ones."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

CLUSTER = "128x8"
_WIDTHS = range(16, 96, 8)


def small_networks(count: int, policy: str) -> dict[str, Any]:
    """The spec of so many MLPs of ten widths."""
    over = {"model.arguments.widths": [[width] for width in _WIDTHS], "seed": list(range(count // len(_WIDTHS)))}
    grid = {"name": "net-{index}", "model": {"name": "trainers.zoo:MLP", "arguments": {"widths": [16]}}, "over": over}
    return {**_common(policy, {}), "jobs": [{"grid": grid}]}


def deep_networks(count: int) -> dict[str, Any]:
    """The spec of ResNets with bottlenecks, 50 layers and more, no two alike."""
    jobs = []
    for number in range(count):
        blocks = [3, 4 + number % 10, 6 + number // 10, 3]
        arguments = {"blocks": blocks, "block": "bottleneck", "classes": 10, "channels": 1}
        jobs.append({"name": f"resnet-{number}", "model": {"name": "trainers.zoo:ResNet", "arguments": arguments}})
    return {**_common("flotilla", {"batch_size": 8, "virtual_workers": 16}), "jobs": jobs}


def _common(policy: str, defaults: dict[str, Any]) -> dict[str, Any]:
    job = {
        "data": "digits",
        "optimizer": {"name": "SGD", "arguments": {"lr": 0.1}},
        "virtual_workers": 8,
        "batch_size": 64,
        "stop": {"epochs": 4},
        **defaults,
    }
    data = {"digits": {"train": {"source": "preprocess:DrawnDigits", "arguments": {"count": 2048}}}}
    resources = {"trainers": 1024, "preprocessors": 128, "device": "cpu"}
    return {"name": "planned", "data": data, "defaults": job, "resources": resources, "policy": {"name": policy}}


def plan_seconds(spec: dict[str, Any]) -> float:
    """CPU seconds of planning a spec on CLUSTER."""
    with tempfile.TemporaryDirectory(prefix="plans-") as name:
        path = Path(name) / "planned.yaml"
        path.write_text(yaml.safe_dump(spec))
        command = [sys.executable, "-m", "fleet", "plan", str(path), "--cluster", CLUSTER, "--json"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"fleet plan ended with {process.returncode}")
    return used.ru_utime + used.ru_stime
