"""What it costs that TPE suggests ahead: searches of a made-up problem, with TPE and at random."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.bars import at_most
from fleet.search.of_spec import search_of
from fleet.spec import EnsembleSpec

SEEDS = 16
TRIALS = 120
WIDTH = 12
EPOCHS = 27
AHEAD = (0, 4, 8)
USUAL = 4
_OVER = {
    "lr": {"log_uniform": [1e-5, 0.1]},
    "decay": {"log_uniform": [1e-6, 0.01]},
    "width": {"integer": [5, 9]},
    "dropout": {"uniform": [0.0, 0.5]},
    "activation": {"choice": ["relu", "gelu", "silu"]},
    "depth": {"integer": [1, 8]},
}


def measure(repetitions: int) -> dict[str, Any]:
    """Search with random values, and with TPE that suggests 0, 4 and 8 trials ahead, and as Optuna has it otherwise.

    Args:
        repetitions: seeds; 0: 16.

    Returns:
        {"bars": [...], "tables": [...]}
    """
    seeds = range(repetitions or SEEDS)
    ways: dict[str, dict[str, Any]] = {"random": {"sampler": "random"}}
    ways |= {f"TPE, K = {ahead}": {"sampler": "tpe", "prefetch": ahead} for ahead in AHEAD}
    for key in ("multivariate", "constant_liar"):
        ways[f"TPE, K = {USUAL}, {key}"] = {"sampler": {"name": "tpe", "arguments": {key: True}}, "prefetch": USUAL}
    found = {name: [_best(seed, way) for seed in seeds] for name, way in ways.items()}
    mean = {name: statistics.fmean(losses) for name, losses in found.items()}
    return {
        "bars": [
            at_most(f"best loss over that of random values, {name}", mean[name] / mean["random"], 1.0)
            for name in (f"TPE, K = {ahead}" for ahead in AHEAD)
        ],
        "tables": [
            {
                "title": f"best loss of {TRIALS} trials, W = {WIDTH}, {len(seeds)} seeds",
                "columns": ["", "mean", "least", "most"],
                "rows": [[name, mean[name], min(losses), max(losses)] for name, losses in found.items()],
            }
        ],
    }


def _best(seed: int, way: Mapping[str, Any]) -> float:
    """The best loss that a search finds."""
    search: Any = {
        "name": "trial-{trial}", "job": {"stop": {"epochs": EPOCHS}}, "over": _OVER, "metric": "loss",
        "stopping": "halving", "width": WIDTH, "trials": TRIALS, **way,
    }  # fmt: skip
    spec = EnsembleSpec.model_validate({"name": "searched", "seed": seed, "search": search})
    found = search_of(spec, lambda trial, values: 1000 * (1 + int(values["width"])))
    while not found.is_over:
        segment = found.needed()[0]
        found.tell(segment.trial, segment.end, _loss(seed, segment.trial, found.values(segment.trial), segment.end))
    best = found.best()
    return math.inf if best is None else best[1]


def _loss(seed: int, trial: int, values: Mapping[str, Any], epoch: int) -> float:
    """A loss whose best learning rate goes with the width, decay with the rate, and activation with the depth.

    Where its bottom lies is drawn by seed path (seed, 11), its noise by (seed, 12, trial, epoch).
    """
    place = np.random.default_rng([seed, 11]).uniform(-0.8, 0.8, 4).tolist()
    wide = values["width"] - 7
    rate = math.log10(values["lr"]) + 3 + place[0] + 0.5 * wide
    decay = math.log10(values["decay"]) + 4 + place[1] + 0.5 * rate
    dropout = abs(values["dropout"] - 0.15 - 0.1 * place[2] - 0.03 * wide)
    activation = 0.1 * (values["activation"] != ("gelu" if values["depth"] < 5 else "relu"))
    depth = 0.02 * abs(values["depth"] - 4 - 2 * place[3])
    end = 0.12 * rate**2 + 0.06 * decay**2 + dropout + activation + depth
    fall = (0.5 - 0.05 * (wide - 2)) * epoch ** -(0.4 + 0.3 * values["dropout"])
    noise = 0.01 * np.random.default_rng([seed, 12, trial, epoch]).standard_normal()
    return float(0.1 + end + fall + noise)
