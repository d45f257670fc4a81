"""Ensembles of networks whose rates a coordinator guesses wrong: drawn at random, as specs to be rehearsed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rehearsed_ensembles import DATA

NETWORKS, VIRTUAL_WORKERS, BATCH, SAMPLES = 12, 4, 4, 2000
SLOWEST, FASTEST = 100.0, 800.0
"""Bounds of r(1), samples/s, as far apart as FLEET's (MLSys'20, Figure 7); its logarithm is drawn evenly."""
WRONG = 2.0
"""A device works up to so many times as fast on a network's operations, or so many times as slowly, as on others'."""
EFFICIENCY = (0.85, 0.99)
"""Bounds of what each device keeps of its speed for each further one, drawn evenly."""
EPOCHS = (2, 6)
WIDEST = 400
"""Hidden units of a network that trains as slowly as any; their number goes by the rate."""


@dataclass(frozen=True)
class GuessedNetwork:
    """One network: samples/s by devices, epochs, and its hidden units, by which its rate is guessed."""

    name: str
    rates: dict[int, float]
    epochs: int
    width: int


def draw_guessed_networks(seed: int) -> list[GuessedNetwork]:
    """Draw an ensemble; seed path ("guessed-ensemble", seed)."""
    random = np.random.default_rng([*b"guessed-ensemble", seed])
    networks = []
    for index in range(NETWORKS):
        single = float(np.exp(random.uniform(np.log(SLOWEST), np.log(FASTEST))))
        wrong = float(np.exp(random.uniform(-np.log(WRONG), np.log(WRONG))))
        kept, epochs = float(random.uniform(*EFFICIENCY)), int(random.integers(EPOCHS[0], EPOCHS[1] + 1))
        width = max(1, round(WIDEST * SLOWEST / single * wrong))
        networks.append(GuessedNetwork(f"net-{index:02}", _rates(single, kept), epochs, width))
    return networks


def write_guessed_ensemble(folder: Path, seed: int, learn: bool) -> Path:
    """Write the spec of a rehearsal, and the data that it names; return the spec's path.

    Args:
        learn: the coordinator does not know the rates when the rehearsal begins.
    """
    networks = draw_guessed_networks(seed)
    spec: dict[str, Any] = {
        "name": f"guessed-{seed}-{'learnt' if learn else 'known'}",
        "data": {"blobs": {"train": {"source": "blobs:Blobs", "arguments": {"count": SAMPLES}}}},
        "defaults": {
            "data": "blobs",
            "optimizer": {"name": "SGD", "arguments": {"lr": 0.01, "momentum": 0.9}},
            "loss": "cross_entropy",
            "virtual_workers": VIRTUAL_WORKERS,
            "batch_size": BATCH,
        },
        "jobs": [
            {
                "name": each.name,
                "model": {"name": "trainers.zoo:MLP", "arguments": {"inputs": 64, "widths": [each.width]}},
                "stop": {"epochs": each.epochs},
            }
            for each in networks
        ],
        "checkpoints": {"every": 1000},
        "rehearse": {"rates": {each.name: each.rates for each in networks}, "learn": learn},
    }
    (folder / "blobs.py").write_text(DATA)
    path = folder / f"{spec['name']}.yaml"
    path.write_text(json.dumps(spec))
    return path


def _rates(single: float, kept: float) -> dict[int, float]:
    """r(m): the largest block sets the pace, as workers are dealt out whole."""
    busy = {m: VIRTUAL_WORKERS / (m * -(-VIRTUAL_WORKERS // m)) for m in range(1, VIRTUAL_WORKERS + 1)}
    return {m: round(single * m * kept ** (m - 1) * share, 3) for m, share in busy.items()}
