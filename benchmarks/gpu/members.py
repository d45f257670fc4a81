"""An ensemble of small networks with 1, 2, 4 and 8 of them on one device at a time."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.gpu.part import GpuPart, Skipped
from benchmarks.gpu.runs import SHARING, digits_path, may_share, one_device, rate_of
from benchmarks.written_spec import write_spec

MEMBERS = (1, 8, 4, 2)
"""In the order in which they run: time may end."""
NETWORKS, EPOCHS, SAMPLES = 8, 4, 4000
RATE = 5000.0
"""Samples a second of each, so that none is measured first; policies see equal networks."""


def measure(part: GpuPart) -> None:
    """Train the same ensemble with more and more members a device."""
    if not may_share():
        raise Skipped(f"the spec of this version has no resources.{SHARING}")
    rows: list[list[Any]] = []
    networks = 2 if part.given.small else NETWORKS
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as name:
        spec = _spec(Path(name), networks, 1 if part.given.small else EPOCHS)
        for members, _ in part.shares([count for count in MEMBERS if count <= networks]):
            out = Path(name) / f"{members}"
            words = ["--trainers", f"{members}", "--set", f"resources.{SHARING}={members}"]
            seen = one_device(part.given.kind)
            part.fleet("run", spec, "--out", out, *words, PYTHONPATH=digits_path(), **seen)
            _, seconds, rate = rate_of(out, SAMPLES)
            rows.append([members, seconds, rate, f"{rate / (rows[0][2] if rows else rate):.2f}"])
            rows.sort()
            columns = ["members a device", "training s", "samples/s of all", "over 1 member"]
            part.table(f"{networks} small networks on one device", columns, rows)
    if len(rows) > 1 and not part.given.small:
        best = max(rate for _, _, rate in rows[1:]) / rows[0][2]
        part.bar(f"{networks} small networks, several on the device over one at a time", best, ">= 2", best >= 2)


def _spec(folder: Path, networks: int, epochs: int) -> Path:
    """Networks of one device each that read one stream of digits together."""
    model = {"name": "trainers.zoo:ResNet", "arguments": {"blocks": [1, 1, 1], "width": 16, "channels": 1}}
    names = [f"net-{number}" for number in range(networks)]
    spec = {
        "name": "members",
        "data": {"digits": {"train": {"source": "digits:Digits"}}},
        "defaults": {
            "data": "digits",
            "optimizer": {"name": "AdamW", "arguments": {"lr": 0.001}},
            "loss": "cross_entropy",
            "virtual_workers": 1,
            "batch_size": 64,
            "stop": {"epochs": epochs},
        },
        "jobs": [{"name": name, "model": model} for name in names],
        "policy": {"name": "homogeneous"},
    }
    return write_spec(folder, spec, {name: {1: RATE} for name in names})
