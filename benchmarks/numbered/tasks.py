"""Tasks and keys of specs, held against stock DDP: each is equal to the last bit, or refused with the mend."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.bars import at_most, bar
from benchmarks.numbered.fleet_runs import fleet, write_spec

_MODULE = "benchmarks.numbered.written_tasks"
_POOL_SECONDS = 60.0
_TASKS = ("Method", "Methods", "CallAndMethod", "Dropping", "Weighed")
_SGD = {"name": "SGD", "arguments": {"lr": 0.1}}
_ADAMW = {"name": "AdamW", "arguments": {"lr": 0.01, "weight_decay": 0.1}}
_JOBS: dict[str, dict[str, Any]] = {
    "drop_last": {"drop_last": True, "data": "rows"},
    "balanced": {"data": "balanced"},
    "weights": {"data": "weighed", "drop_last": True},
    "groups": {"optimizer": {**_ADAMW, "groups": [{"match": ["*.bias", "*.1.*"], "weight_decay": 0}]}},
    "joined": {
        "optimizer": {
            "groups": [
                {"match": ["*.bias", "*.1.weight"], **_ADAMW},
                {"match": ["*"], "name": "Muon", "arguments": {"lr": 0.02}},
            ]
        },
        "schedule": {"name": "CosineAnnealingLR", "arguments": {"T_max": 20}},
    },
}
_REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a last batch of one before BatchNorm": ({"drop_last": False}, "drop_last: true"),
    "Muon on biases": ({"optimizer": "Muon"}, "groups:"),
    "an argument for each kind of weight": (
        {"optimizer": {"name": "AdamW", "arguments": {"weight_decay": {"weight": 0.1, "bias": 0}}}}, "groups:",
    ),
    "a pattern of no parameter": (
        {"optimizer": {**_ADAMW, "groups": [{"match": "*.biass", "weight_decay": 0}]}}, "*.bias",
    ),
    "an option of no optimizer": (
        {"optimizer": {**_ADAMW, "groups": [{"match": "*.bias", "weight_decy": 0}]}}, "weight_decay",
    ),
}  # fmt: skip
"""What is refused, and a word of the mend."""


def bars() -> list[dict[str, Any]]:
    """Run all of them."""
    with tempfile.TemporaryDirectory() as name:
        return [*_equal(Path(name)), *_of_pools(), *_told(), *_refusals()]


def _spec(jobs: list[dict[str, Any]], trainers: int = 1) -> dict[str, Any]:
    held_out = {"source": f"{_MODULE}:Rows", "arguments": {"train": False, "count": 50}}
    rows = {"train": f"{_MODULE}:Rows", "held_out": held_out}
    weighed = {**rows, "order": {"weights": f"{_MODULE}:by_class"}}
    return {
        "name": "tasks", "seed": 3,
        "data": {"rows": rows, "balanced": {**rows, "order": {"weights": "balanced"}}, "weighed": weighed},
        "defaults": {"stop": {"epochs": 2}, "batch_size": 8},
        "jobs": jobs, "resources": {"trainers": trainers, "device": "cpu", "preprocessors": 2},
    }  # fmt: skip


def _network(name: str, **keys: Any) -> dict[str, Any]:
    model = {"name": f"{_MODULE}:Net"}
    return {"name": name, "model": model, "data": "rows", "optimizer": _SGD, "drop_last": True, **keys}


def _equal(folder: Path) -> list[dict[str, Any]]:
    """Train with one and two virtual workers, and hold the weights against stock DDP's."""
    jobs: list[dict[str, Any]] = [
        {"name": f"{task}-{workers}", "task": f"{_MODULE}:{task}", "virtual_workers": workers}
        for task in (*_TASKS, "Keywords")
        for workers in (1, 2)
    ]
    jobs += [_network(f"{name}-2", virtual_workers=2, **keys) for name, keys in _JOBS.items()]
    ended = fleet(folder, "run", write_spec(folder, _spec(jobs, 2)), "--out", "r")
    if ended.code:
        print(ended.output)
    found = []
    for job in jobs:
        proved = fleet(folder, "replay", "r", job["name"], "--ddp", "--checkpoint", "ddp.h5")
        if proved.code:
            print(job["name"], proved.output)
        found.append((job["name"], proved.code == 0))
    kinds = {
        "methods of the network, 1 and 2 workers: bits of DDP": ("Method", "CallAndMethod"),
        "a network called by keywords, evaluated: bits of DDP": ("Keywords",),
        "drop_last, of a task and of a job: bits of DDP": ("Drop", "drop"),
        "samples drawn by weights: bits of DDP with the same sampler": ("Weigh", "weights", "balanced"),
        "groups of parameters, and optimizers by match: bits of DDP": ("groups", "joined"),
    }
    return [_count(title, [good for name, good in found if name.startswith(begin)]) for title, begin in kinds.items()]


def _count(title: str, good: list[bool]) -> dict[str, Any]:
    return bar(title, sum(good), f"{len(good)} of {len(good)}", all(good) and bool(good))


def _of_pools() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        begin = time.monotonic()
        job = {"name": "pool", "task": f"{_MODULE}:Pooled"}
        ended = fleet(Path(name), "run", write_spec(Path(name), _spec([job])), "--out", "r")
        if ended.code:
            print(ended.output)
        seconds = round(time.monotonic() - begin, 1)
        return [{**at_most("a data set with a pool of processes", seconds, _POOL_SECONDS, " s"),
                 "ok": ended.code == 0 and seconds <= _POOL_SECONDS}]  # fmt: skip


def _told() -> list[dict[str, Any]]:
    """Whether `fleet train` tells of a data set that draws from a generator of its own."""
    with tempfile.TemporaryDirectory() as name:
        words = ("--virtual-workers", "2", "--steps", "3", "--checkpoint", "a.h5")
        ended = fleet(Path(name), "train", f"{_MODULE}:OwnGenerator", *words)
        told = ended.code == 0 and "generator of their own" in " ".join(ended.output.split())
        return [bar("fleet train tells of a generator of one's own", int(told), "told", told)]


def _refusals() -> list[dict[str, Any]]:
    """What cannot be trained is refused before anything is, by `plan` and by `run`."""
    good = []
    for title, (keys, mend) in _REFUSED.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            spec = write_spec(folder, _spec([_network("refused", **keys)]))
            ended = [fleet(folder, "plan", spec), fleet(folder, "run", spec, "--out", "r")]
            good.append(all(each.code == 2 and mend in each.output for each in ended))
            if not good[-1]:
                print(title, *(each.output for each in ended))
    return [_count("refused at the start, with the mend", good)]
