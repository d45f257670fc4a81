"""Batches that change while jobs train: how soon a queue is done, what accuracy is reached, and the bits.

The queue is rehearsed: the paper's jobs (Saxena et al., 2020, IV) with variable batches, and with fixed ones, drawn at
random, the largest and the smallest. The accuracy comes from real training on Fashion-MNIST, where batches grow and
shrink as other networks come and go (their Figure 2); each network is trained again under stock DDP.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from benchmarks.bars import Bar, bar, median_bar
from benchmarks.batch_queue import DEVICES, FIXED, MODES, draw_queue, write_queue
from benchmarks.rehearsed_ranks import RehearsedRun, rehearse
from benchmarks.written_spec import write_spec
from fleet.machine.launch.exit_codes import DONE
from fleet.run_directory.journal import read_journal

ROOT = Path(__file__).resolve().parents[1]
QUEUES = 2
START_SECONDS, RUN_SECONDS, PATIENCE = 300.0, 600.0, 1200.0
SOONER, POINTS_LOST = 1.5, 1.0
FASHION = ROOT / "examples" / "fashion.yaml"
RULES = ("square_root", "linear")
ARRIVALS = {"mlp": 0.0, "cnn": 10.0, "resnet": 20.0}
RANGE, TRAINING, HELD_OUT, EPOCHS = (64, 256), 12_000, 10_000, 6
GROWTH, WARM_UP = 2, 1
"""A batch doubles or halves at most from one epoch to the next, in whose first epoch the learning rate follows it along
a line (Goyal et al., 2017, 2.2; Smith et al., 2018, raise a batch in steps too).
"""

Times = dict[str, dict[str, float]]
"""Mode -> the mean time from a job's arrival to its end, and that from the first arrival to the last end, s."""


def main(repetitions: int = 0) -> dict[str, Any]:
    """Rehearse `repetitions` queues; train and replay.

    Returns:
        {"bars": [...], "tables": [...], "notes": [...]}.
    """
    with tempfile.TemporaryDirectory(prefix="fleet-batches-") as name:
        queues = [_rehearsed(Path(name), seed) for seed in range(repetitions or QUEUES)]
        bars, tables = _queue_bars(queues), [_queue_table(queues)]
        if not _fashion_is_there():
            note = "Fashion-MNIST is not here (Debian's dataset-fashion-mnist): accuracy and bits were not measured"
            return {"bars": bars, "tables": tables, "notes": [note]}
        reached, equal = _trained(Path(name))
    return {"bars": bars + _training_bars(reached, equal), "tables": [*tables, _training_table(reached)], "notes": []}


def _rehearsed(folder: Path, seed: int) -> Times:
    """Rehearse a queue in each mode; which one goes first changes with the seed."""
    jobs, own = draw_queue(seed), folder / f"queue-{seed}"
    own.mkdir()
    order = MODES[seed % len(MODES) :] + MODES[: seed % len(MODES)]
    runs = [RehearsedRun(str(write_queue(own, jobs, mode)), str(own / mode), "throughput") for mode in order]
    rehearse(runs, (DEVICES,), own, START_SECONDS + RUN_SECONDS * len(runs))
    arrivals = {job.name: job.arrival for job in jobs}
    times = {mode: _times(own / mode, arrivals) for mode in MODES}
    print(f"queue {seed}: {times}", file=sys.stderr, flush=True)
    return times


def _times(out: Path, arrivals: dict[str, float]) -> dict[str, float]:
    ends = {event["job"]: event["t"] for event in read_journal(out / "journal.jsonl") if event["event"] == "done"}
    changes = sum(event["event"] == "batch" for event in read_journal(out / "journal.jsonl"))
    waits = [ends[job] - arrival for job, arrival in arrivals.items()]
    return {"completion": statistics.mean(waits), "whole": max(ends.values()), "changes": changes}


def _queue_bars(queues: list[Times]) -> list[Bar]:
    """How many times as long a job takes with fixed batches."""
    ratios = {mode: [times[mode]["completion"] / times["variable"]["completion"] for times in queues] for mode in MODES}
    best = [min(each) for each in zip(*(ratios[mode] for mode in FIXED))]
    sooner = statistics.median(best) >= SOONER
    bars = [median_bar("completion time, best fixed batches by variable", best, f">= {SOONER}", sooner)]
    for mode in ("random", "min"):
        gain = ratios[mode]
        bars.append(
            median_bar(f"completion time, {mode} batches by variable", gain, "> 1", statistics.median(gain) > 1)
        )
    return bars


def _queue_table(queues: list[Times]) -> dict[str, Any]:
    rows = [
        [number, mode, *(round(times[mode][what], 2) for what in ("completion", "whole")), int(times[mode]["changes"])]
        for number, times in enumerate(queues)
        for mode in MODES
    ]
    columns = ["queue", "batches", "completion time, mean, s", "whole queue, s", "batches settled"]
    return {"title": f"rehearsed on {DEVICES} devices", "columns": columns, "rows": rows}


def _fashion_is_there() -> bool:
    images = yaml.safe_load(FASHION.read_text())["data"]["fashion"]["train"]["arguments"]["images"]
    return Path(images).exists()


def _trained(folder: Path) -> tuple[dict[str, dict[str, float]], dict[str, bool]]:
    """Accuracy by rule ("fixed": none) and network; and whether each network of variable batches has DDP's bits."""
    reached, equal = {}, {}
    for rule in ("fixed", *RULES):
        own = folder / rule
        own.mkdir()
        words = ["run", str(_fashion_spec(own, rule)), "--out", str(own / "out")]
        subprocess.run([sys.executable, "-m", "fleet", *words], check=True, timeout=PATIENCE, stdout=sys.stderr)
        jobs = json.loads((own / "out" / "run.json").read_text())["jobs"]
        reached[rule] = {name: 100 * job["metrics"]["accuracy"] for name, job in jobs.items()}
        for name in ARRIVALS if rule != "fixed" else ():
            command = [sys.executable, "-m", "fleet", "replay", str(own / "out"), name, "--ddp"]
            done = subprocess.run(command, timeout=PATIENCE, stdout=sys.stderr)
            events = read_journal(own / "out" / "journal.jsonl")
            changes = sum(event["event"] == "batch" and event["job"] == name for event in events)
            equal[f"{name}, {rule}, {changes} batches"] = done.returncode == DONE
    return reached, equal


def _fashion_spec(folder: Path, rule: str) -> Path:
    """Three networks that come one after another; on one device small batches are best, on two large ones."""
    example = yaml.safe_load(FASHION.read_text())
    data = example["data"]["fashion"]
    data["train"]["subset"], data["held_out"]["subset"] = TRAINING, HELD_OUT
    steps = EPOCHS * -(-TRAINING // RANGE[0])
    gentle = {"growth": GROWTH, "warm_up": WARM_UP}
    changing: dict[str, Any] = {"batch": {"range": list(RANGE), "learning_rate": rule, **gentle}}
    batch = {} if rule == "fixed" else changing
    models = {
        "mlp": {"name": "trainers.zoo:MLP", "arguments": {"widths": [256]}},
        "cnn": {"name": "trainers.zoo:CNN", "arguments": {"widths": [8, 16, 32]}},
        "resnet": {"name": "trainers.zoo:ResNet", "arguments": {"blocks": [1, 1, 1], "width": 8, "channels": 1}},
    }
    schedule = {"name": "OneCycleLR", "arguments": {"max_lr": 0.1, "total_steps": steps}}
    spec = {
        "name": "fashion",
        "seed": 1,
        "data": {"fashion": data},
        "defaults": {
            "data": "fashion",
            "optimizer": {"name": "SGD", "arguments": {"lr": 0.05, "momentum": 0.9}},
            "schedule": schedule,
            "metrics": ["accuracy"],
            "virtual_workers": 2,
            "batch_size": RANGE[0] // 2,
            "stop": {"epochs": EPOCHS},
        },
        "jobs": [{"name": name, "model": models[name], "arrival": at, **batch} for name, at in ARRIVALS.items()],
        "resources": {"trainers": 2, "preprocessors": 1, "device": "cpu"},
        "policy": {"name": "throughput"},
    }
    rates = {name: {1: 1000.0, 2: 1100.0} for name in models}
    return write_spec(folder, spec, rates | {f"{name}, batch {RANGE[1]}": {1: 990.0} for name in models})


def _training_bars(reached: dict[str, dict[str, float]], equal: dict[str, bool]) -> list[Bar]:
    lost = {rule: max(reached["fixed"][name] - reached[rule][name] for name in ARRIVALS) for rule in RULES}
    rule = min(lost, key=lambda each: lost[each])
    changed = sum(not name.endswith(" 0 batches") for name in equal)
    count, least = str(len(equal)), lost[rule]
    return [
        bar(f"accuracy lost, points, worst network, {rule}", least, f"<= {POINTS_LOST:g}", least <= POINTS_LOST),
        bar("networks with the bits of stock DDP with their batches", sum(equal.values()), count, all(equal.values())),
        bar("of these, networks whose batch changed", changed, count, changed == len(equal)),
    ]


def _training_table(reached: dict[str, dict[str, float]]) -> dict[str, Any]:
    rows = [[rule, *(round(of_rule[name], 2) for name in ARRIVALS)] for rule, of_rule in reached.items()]
    title = f"accuracy on Fashion-MNIST, {TRAINING:,} samples, {EPOCHS} epochs, batches of {RANGE[0]} to {RANGE[1]}, %"
    return {"title": title, "columns": ["learning rate", *ARRIVALS], "rows": rows}
