"""Searches: spaces that can be said, trials with the same values, samples that grow, what stays on disk."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.numbered.fingerprints import fleet
from preprocess.files.reading import read_json
from preprocess.files.writing import write_whole

SAMPLERS = ("random", "grid", "qmc", "tpe", "gp", "cmaes", "nsga2")
MODULE = """import torch
from torch import nn


class Rows:
    def __init__(self, train=True):
        generator = torch.Generator().manual_seed(int(train))
        self.x = torch.randn(64, 8, generator=generator)
        self.y = (self.x[:, :2].sum(1) > 0).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], int(self.y[i])


class Net(nn.Sequential):
    def __init__(self, width=8, drop=0.0):
        super().__init__(nn.Linear(8, width), nn.ReLU(), nn.Dropout(drop), nn.Linear(width, 2))
"""
SPACE = {
    "optimizer.name": {"choice": ["SGD", "Adam"]},
    "optimizer.arguments.momentum": {"uniform": [0.0, 0.8], "step": 0.4, "when": {"optimizer.name": "SGD"}},
    "model.arguments.width": {"log_integer": [2, 8]},
    "model.arguments.drop": {"uniform": [0.0, 0.2], "step": 0.1},
}
SMALL = {"optimizer.arguments.lr": {"choice": [0.001, 0.1, 0.5]}, "model.arguments.width": {"choice": [4, 8]}}


def spec(**more: Any) -> dict[str, Any]:
    """A spec as values, with further sections."""
    return {
        "name": "s",
        "data": {"d": {"train": "mine:Rows", "held_out": {"source": "mine:Rows", "arguments": {"train": False}}}},
        "defaults": {
            "data": "d", "model": {"name": "mine:Net"}, "optimizer": {"name": "SGD", "arguments": {"lr": 0.1}},
            "metrics": ["accuracy"], "stop": {"epochs": 1},
        },
        "resources": {"trainers": 1, "device": "cpu"},
        **more,
    }  # fmt: skip


def search(over: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A search as values."""
    return {"name": "t-{trial}", "job": {}, "over": dict(over), "metric": "loss", "width": 2, "trials": 8, **more}


def ran(folder: Path, out: str, values: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Train a spec in a folder; returns the exit code, and run.json."""
    write_whole(folder / "mine.py", MODULE)
    write_whole(folder / "s.yaml", json.dumps(values))
    code = fleet(folder, "run", "s.yaml", "--out", out).returncode
    return code, read_json(folder / out / "run.json")


def _fits(values: Mapping[str, Any]) -> bool:
    momentum = values.get("optimizer.arguments.momentum")
    right = momentum in (0.0, 0.4, 0.8) if values["optimizer.name"] == "SGD" else momentum is None
    return right and type(values["model.arguments.width"]) is int and values["model.arguments.drop"] in (0.0, 0.1, 0.2)


def _spaces(folder: Path) -> int:
    """How many samplers give trials that fit, all of which train."""
    good = 0
    for name in SAMPLERS:
        code, told = ran(folder, f"space-{name}", spec(search=search(SPACE, sampler=name)))
        trials = told["search"]["trials"]
        good += code == 0 and len(trials) == 8 and all(_fits(one["values"]) for one in trials)
    return good


def _twins(folder: Path) -> tuple[int, int]:
    """Networks that 20 trials of 6 combinations train, and answers that are not those of the twin."""
    code, told = ran(folder, "twins", spec(search=search(SMALL, sampler="tpe", trials=20)))
    trials = {one["name"]: one for one in told["search"]["trials"]}
    wrong = sum(
        one["value"] != trials[one["same_as"]]["value"] or one["values"] != trials[one["same_as"]]["values"]
        for one in trials.values()
        if "same_as" in one
    )
    return len(told["jobs"]) if code == 0 and len(trials) == 20 else -1, wrong


def _sample(count: int) -> dict[str, Any]:
    over = {"optimizer.arguments.lr": {"log_uniform": [0.01, 0.5]}}
    return spec(jobs=[{"sample": {"name": "s-{index}", "count": count, "seed": 1, "over": over}}])


def _more(folder: Path) -> int:
    """Networks that are done once a sample of 3 has 5 in the same directory; -1: the first three were trained again."""
    _, first = ran(folder, "more", _sample(3))
    code, told = ran(folder, "more", _sample(5))
    same = all(told["jobs"][name]["metrics"] == job["metrics"] for name, job in first["jobs"].items())
    done = sum(job["status"] == "done" for job in told["jobs"].values())
    return done if code == 0 and same else -1


def _piled(folder: Path) -> int:
    """Checkpoints that a search by halving leaves of trials that it stopped, but for the best, with `keep: 0`."""
    over = {"optimizer.arguments.lr": {"log_uniform": [0.001, 0.5]}}
    halving = search(over, trials=9, stopping={"name": "halving", "eta": 3, "rungs": [1, 2, 4]})
    values = spec(search=halving, checkpoints={"keep": 0})
    values["defaults"]["stop"] = {"epochs": 4}
    _, told = ran(folder, "piled", values)
    stopped = [one["name"] for one in told["search"]["trials"] if one["status"] == "stopped"]
    kept = [name for name in stopped if name != told["search"]["best"]]
    return sum(len(list((folder / "piled" / "checkpoints" / name).glob("*.h5"))) for name in kept)


def bars() -> list[dict[str, Any]]:
    """Train small searches and samples."""
    with tempfile.TemporaryDirectory(prefix="fleet-searches-") as place:
        folder = Path(place)
        samplers, (networks, wrong), more, piled = _spaces(folder), _twins(folder), _more(folder), _piled(folder)
    return [
        {
            "name": "samplers with steps, logarithms and conditions", "value": samplers, "bar": "7 of 7",
            "ok": samplers == 7,
        },
        {
            "name": "networks that 20 trials of 6 combinations train", "value": networks, "bar": "<= 6",
            "ok": 0 < networks <= 6,
        },
        {"name": "trials answered otherwise than their twin", "value": wrong, "bar": "0", "ok": wrong == 0},
        {"name": "networks of a sample that grew from 3 to 5", "value": more, "bar": "5", "ok": more == 5},
        {"name": "checkpoints of stopped trials that stay", "value": piled, "bar": "0", "ok": piled == 0},
    ]  # fmt: skip
