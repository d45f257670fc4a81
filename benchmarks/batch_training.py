"""What accuracy networks reach on Fashion-MNIST whose batch grows while they train (Saxena et al., 2020, Figure 2).

All networks of all seeds train in one run: with the batch that is their own, and with one that grows at the ends of
epochs to the largest of its range, under each rule for the learning rate. A batch that may only grow by `GROWTH` comes
there in steps, whatever else runs, so it changes in every one of them. Networks of the first seed are trained again
under stock DDP.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from benchmarks.bars import Bar, bar
from benchmarks.fashion_files import SPEC, Files
from benchmarks.written_spec import write_spec
from fleet.journal.events import Batch
from fleet.journal.journal import read_journal
from fleet.machine.launch.launched import DONE

PATIENCE, POINTS_LOST = 1200.0, 1.0
OWN, RULES, SEEDS = "own batch", ("square_root", "linear"), (1, 2)
RANGE, SAMPLES, EPOCHS = (64, 192), 12_000, 6
GROWTH, WARM_UP = 1.5, 1
"""A batch grows by half at most from one epoch to the next, in whose first epoch the learning rate follows it along a
line (Goyal et al., 2017, 2.2; Smith et al., 2018, raise a batch in steps too).
"""
WORKERS, TRAINERS = 2, 2
MODELS: dict[str, dict[str, Any]] = {
    "cnn": {"name": "trainers.zoo:CNN", "arguments": {"widths": [8, 16, 32]}},
    "deep": {"name": "trainers.zoo:MLP", "arguments": {"widths": [128, 128]}},
    "wide": {"name": "trainers.zoo:MLP", "arguments": {"widths": [256]}},
}
"""The longest first."""


@dataclass(frozen=True)
class GrownNetwork:
    """What became of a network.

    Attributes:
        accuracy: of the last epoch, %.
        changes: how often its batch changed between two epochs.
        equal: whether stock DDP with these batches gave the same bits; None: not asked.
    """

    accuracy: float
    changes: int
    equal: bool | None


Grown = dict[tuple[str, str, int], GrownNetwork]
"""(network, rule, seed) -> what became of it."""


def train_growing(folder: Path, files: Files) -> Grown:
    """Train all of them in one run of two trainers, and those of the first seed again under stock DDP."""
    out = folder / "out"
    spec = write_spec(folder, _spec(files), _rates())
    _fleet("run", str(spec), "--out", str(out)).check_returncode()
    jobs = json.loads((out / "run.json").read_text())["jobs"]
    batches = [event for event in read_journal(out / "journal.jsonl") if isinstance(event, Batch)]
    changed = [event.job for event in batches if event.epoch]  # before its first epoch it is only chosen
    return {
        (network, rule, seed): GrownNetwork(
            100 * jobs[name]["metrics"]["accuracy"], changed.count(name), _has_the_bits(out, name, rule, seed)
        )
        for network, rule, seed in product(MODELS, (OWN, *RULES), SEEDS)
        if (name := _name(network, rule, seed))
    }


def _has_the_bits(out: Path, name: str, rule: str, seed: int) -> bool | None:
    return None if rule == OWN or seed != SEEDS[0] else _fleet("replay", str(out), name, "--ddp").returncode == DONE


def _fleet(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "fleet", *words], timeout=PATIENCE, stdout=sys.stderr)


def _name(network: str, rule: str, seed: int) -> str:
    return f"{network}-{rule.replace(' ', '_')}-{seed}"


def _spec(files: Files) -> dict[str, Any]:
    """The largest batch is the fastest on any number of devices, so the policy wants it as soon as it may have it."""
    data = yaml.safe_load(SPEC.read_text())["data"]["fashion"]
    for part, paths in files.items():
        data[part]["arguments"] = dict(paths)
    data["train"]["subset"] = SAMPLES
    schedule = {"max_lr": 0.1, "total_steps": EPOCHS * -(-SAMPLES // RANGE[0])}
    return {
        "name": "growing",
        "data": {"fashion": data},
        "defaults": {
            "data": "fashion",
            "optimizer": {"name": "SGD", "arguments": {"lr": 0.05, "momentum": 0.9}},
            "schedule": {"name": "OneCycleLR", "arguments": schedule},
            "metrics": ["accuracy"],
            "virtual_workers": WORKERS,
            "batch_size": RANGE[0] // WORKERS,
            "stop": {"epochs": EPOCHS},
        },
        "jobs": [_job(*which) for which in product(MODELS, (OWN, *RULES), SEEDS)],
        "resources": {"trainers": TRAINERS, "preprocessors": 1, "device": "cpu"},
        "policy": {"name": "throughput"},
    }


def _job(network: str, rule: str, seed: int) -> dict[str, Any]:
    batch = {"range": list(RANGE), "learning_rate": rule, "growth": GROWTH, "warm_up": WARM_UP}
    job = {"name": _name(network, rule, seed), "model": MODELS[network], "seed": seed}
    return job if rule == OWN else {**job, "batch": batch}


def _rates() -> dict[str, dict[int, float]]:
    names = [_name(*which) for which in product(MODELS, (OWN, *RULES), SEEDS)]
    own, largest = {1: 1000.0, 2: 1600.0}, {1: 1500.0}
    return dict.fromkeys(names, own) | {f"{name}, batch {RANGE[1]}": largest for name in names}


def training_bars(grown: Grown) -> list[Bar]:
    """What is lost under the better rule, whether bits are equal, and whether all batches changed."""
    lost = {rule: max(_lost(grown, network, rule) for network in MODELS) for rule in RULES}
    rule = min(RULES, key=lambda each: lost[each])
    least = round(lost[rule], 3)
    variable = [network for (_, rule, _), network in grown.items() if rule != OWN]
    changed = sum(network.changes > 0 for network in variable)
    equal = [network.equal for network in variable if network.equal is not None]
    name = f"accuracy lost, points, worst network, mean of {len(SEEDS)} seeds, {rule}"
    return [
        bar(name, least, f"<= {POINTS_LOST:g}", least <= POINTS_LOST),
        bar("networks with the bits of stock DDP with their batches", sum(equal), str(len(equal)), all(equal)),
        bar("networks whose batch changed as they trained", changed, str(len(variable)), changed == len(variable)),
    ]


def _lost(grown: Grown, network: str, rule: str) -> float:
    """Points that a network loses in the mean of the seeds."""
    return statistics.mean(grown[network, OWN, seed].accuracy - grown[network, rule, seed].accuracy for seed in SEEDS)


def training_table(grown: Grown) -> dict[str, Any]:
    """Each network of each seed."""
    rows = [
        [name, rule, seed, round(network.accuracy, 2), network.changes] for (name, rule, seed), network in grown.items()
    ]
    title = f"Fashion-MNIST, {SAMPLES:,} samples, {EPOCHS} epochs, batches of {RANGE[0]} to {RANGE[1]}"
    return {"title": title, "columns": ["network", "learning rate", "seed", "accuracy, %", "changes"], "rows": rows}
