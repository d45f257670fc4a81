"""Eight small networks trained on JPEG files of 256 px, whose decoding takes longer than all of them together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.pictures import write_encoded
from benchmarks.started_ranks import environment
from benchmarks.written_spec import write_spec

MEMBERS = 8
CLASSES = 4
SIDE = 32
TRAINING = 64
PATIENCE = 300.0


def train_networks(folder: Path, held_out: int) -> Path:
    """Write pictures into `folder`, train the networks on a few of them for an epoch; return the run directory.

    Args:
        held_out: pictures that are held out.
    """
    for part, count in (("train", TRAINING), ("held_out", held_out)):
        for number in range(CLASSES):
            write_encoded(folder / part / f"class-{number}", range(number, count, CLASSES))
    names = [f"mlp-{member}" for member in range(MEMBERS)]
    rates = {name: {1: 1000.0} for name in names}
    spec, run = write_spec(folder, _spec(folder, names), rates), folder / "run"
    command = [sys.executable, "-m", "fleet", "run", str(spec), "--out", str(run)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE, cwd=folder)
    if done.returncode:
        raise RuntimeError(f"the run ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return run


def _spec(folder: Path, names: list[str]) -> dict[str, Any]:
    sources = {part: {"source": "image_folder", "arguments": {"path": str(folder / part)}} for part in PARTS}
    resized = [{"resize": {"size": SIDE}}]
    data = {**sources, "transforms": resized, "held_out_transforms": resized}
    jobs = [
        {
            "name": name,
            "seed": seed,
            "model": {
                "name": "trainers.zoo:MLP",
                "arguments": {"inputs": 3 * SIDE**2, "classes": CLASSES, "widths": [16 + 4 * seed]},
            },
        }
        for seed, name in enumerate(names)
    ]
    defaults = {
        "data": "pictures", "optimizer": {"name": "SGD", "arguments": {"lr": 0.01}}, "metrics": ["accuracy"],
        "virtual_workers": 1, "batch_size": 16, "stop": {"epochs": 1},
    }  # fmt: skip
    return {
        "name": "trained-pictures", "data": {"pictures": data}, "defaults": defaults, "jobs": jobs,
        "resources": {"trainers": 2}, "ensemble": False,
    }  # fmt: skip


PARTS = ("train", "held_out")
