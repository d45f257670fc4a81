"""The demo's ensemble on the device: on one trainer, on two that share it, on all devices; the weights are compared."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from benchmarks.gpu.part import ROOT, GpuPart
from benchmarks.gpu.runs import SHARING, digits_path, may_share, one_device, rate_of

EPOCHS, EPOCHS_SMALL, JOBS_SMALL = 2, 1, 2
SAMPLES = 4000
"""Of an epoch."""
RATES = ROOT / "profiles" / "digits-laptop.json"


def measure(part: GpuPart) -> None:
    """Train each way, one after another."""
    rows: list[list[Any]] = []
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as name:
        folder = Path(name)
        spec, alone = _spec(folder, part.given.small), folder / "alone"
        for title, trainers, options, variables in _ways(part):
            out = folder / title.replace(" ", "-") if rows else alone
            words = ["--trainers", trainers, "--set", f"profile.file={RATES}", *options]
            part.fleet("run", spec, "--out", out, *words, PYTHONPATH=digits_path(), **variables)
            rows.append([title, *rate_of(out, SAMPLES)])
            columns = ["", "networks done", "training s", "samples/s"]
            part.table(f"the digits ensemble, epochs: {EPOCHS_SMALL if part.given.small else EPOCHS}", columns, rows)
            if out != alone:
                part.compared(f"1 trainer, {title}", alone, out)


def _ways(part: GpuPart) -> Iterator[tuple[str, str, list[str], dict[str, str]]]:
    """Give title, trainers, options and variables of each run; the first is what the others are compared with."""
    yield "1 trainer", "1", [], {}
    if may_share():
        shared = one_device(part.given.kind)
        yield "2 trainers that share a device", "2", ["--set", f"resources.{SHARING}=2"], shared
    else:
        part.note(f"no trainers share a device: the spec of this version has no resources.{SHARING}")
    if part.given.count > 1:
        yield f"{part.given.count} devices", str(part.given.count), [], {}


def _spec(folder: Path, small: bool) -> Path:
    """The demo's spec with fewer epochs."""
    spec = yaml.safe_load((ROOT / "examples" / "digits.yaml").read_text())
    spec["defaults"]["stop"] = {"epochs": EPOCHS_SMALL if small else EPOCHS}
    spec["jobs"] = spec["jobs"][: JOBS_SMALL if small else None]
    path = folder / "digits.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return path
