"""Wall time of one heterogeneous ensemble under each policy, rehearsed on 12 devices of 3 pretend nodes.

FLEET, MLSys'20, Figure 5 asks the same of 100 networks on 20 to 160 GPUs: how much faster than one network a device?
Here 24 networks with single-device rates from 22 to 176 samples/s (the paper's Figure 7: 21 to 176 images/s) are
rehearsed: ranks, plans, the data path, reduction messages and checkpoints are real, a device's compute is a wait
taken from the rate curve.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bars import bar

POLICIES = ("baseline", "flotilla", "local", "homogeneous")
NETWORKS, NODES, DEVICES_PER_NODE = 24, 3, 4
SLOWEST, FASTEST = 22.0, 176.0  # samples/s on one device: 8x apart
EFFICIENCY = 0.97  # r(m) = r(1) m 0.97^(m-1), the paper's scaling (Figure 9)
VIRTUAL_WORKERS, BATCH, SAMPLES = 12, 4, 1200
EPOCHS = (2, 6)
TIME_SCALE = 0.2
REPETITIONS = 3
PAPERS_SMALLEST_GAIN = 1.12
PAPERS_WORST_CHECKPOINTS = 6.3  # percent, Table 4
RUN_TIMEOUT = 600
COLUMNS = [
    "policy", "wall s", "spread s", "gain", "gain min", "gain max", "rounds", "waiting s/device", "computing s/device",
    "checkpoints %", "re-forming %", "coordinator %",
]  # fmt: skip

DATA = '''
import numpy as np

from benchmarks.bars import bar

class Blobs:
    """Ten well-parted clouds of points: what they are does not matter where nobody computes."""
    def __init__(self, count):
        draw = np.random.default_rng(0)
        self.labels = draw.integers(0, 10, count)
        self.points = (draw.standard_normal((count, 64)) + self.labels[:, None]).astype(np.float32)
    def __len__(self):
        return len(self.labels)
    def __getitem__(self, index):
        return self.points[index], self.labels[index]
'''


def ensemble(seed: int = 0) -> dict[str, Any]:
    """The spec, with its rate table."""
    draw = np.random.default_rng(seed)
    single = draw.permutation(np.geomspace(SLOWEST, FASTEST, NETWORKS))
    epochs = draw.integers(EPOCHS[0], EPOCHS[1] + 1, NETWORKS)
    jobs, rates = [], {}
    for index, (rate, count) in enumerate(zip(single, epochs)):
        name = f"net-{index:02}"
        jobs.append({"name": name, "stop": {"epochs": int(count)}})
        rates[name] = {m: round(curve(float(rate), m), 3) for m in range(1, VIRTUAL_WORKERS + 1)}
    return {
        "name": "speedup",
        "data": {"blobs": {"train": {"source": "blobs:Blobs", "arguments": {"count": SAMPLES}}}},
        "defaults": {
            "data": "blobs",
            "model": {"name": "trainers.zoo:MLP", "arguments": {"inputs": 64, "widths": [256, 256]}},
            "optimizer": {"name": "SGD", "arguments": {"lr": 0.01, "momentum": 0.9}},
            "loss": "cross_entropy",
            "virtual_workers": VIRTUAL_WORKERS,
            "batch_size": BATCH,
        },
        "jobs": jobs,
        "checkpoints": {"every": 1000},  # as in FLEET: when a network leaves its devices
        "rehearse": {"rates": rates, "time_scale": TIME_SCALE},
    }


def curve(single: float, devices: int) -> float:
    """Samples/s on `devices`, for workers that are dealt out whole: the largest block sets the pace."""
    busy = VIRTUAL_WORKERS / (devices * -(-VIRTUAL_WORKERS // devices))
    return single * devices * EFFICIENCY ** (devices - 1) * busy


def main(repetitions: int = 0) -> dict[str, Any]:
    """Rehearse all policies in turn, several times over; bars, and tables that explain them."""
    repetitions = repetitions or REPETITIONS
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in POLICIES}
    with tempfile.TemporaryDirectory(prefix="fleet-speedup-") as folder:
        Path(folder, "blobs.py").write_text(DATA)
        Path(folder, "spec.yaml").write_text(json.dumps(ensemble()))
        for repetition in range(repetitions):
            for name in POLICIES:
                runs[name].append(rehearse(Path(folder), name, repetition))
                print(f"{name} {repetition}: {runs[name][-1]['wall']:.1f} s", file=sys.stderr, flush=True)
    return summary(runs)


def rehearse(folder: Path, policy: str, repetition: int) -> dict[str, Any]:
    """One run; its figures."""
    out = folder / f"{policy}-{repetition}"
    command = [
        sys.executable,
        "-m",
        "fleet",
        "run",
        str(folder / "spec.yaml"),
        "--rehearse",
        "--policy",
        policy,
        "--out",
        str(out),
    ]
    command += ["--cluster", f"{NODES}x{DEVICES_PER_NODE}", "--set", f"seed={repetition}"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_TIMEOUT, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    if done.returncode != 0:
        raise RuntimeError(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        )
    figures = read_figures(out)
    shutil.rmtree(out)
    return figures


def read_figures(out: Path) -> dict[str, Any]:
    from fleet.report.history import read_history
    from fleet.report.waiting import device_times, mean_waiting

    run = json.loads((out / "run.json").read_text())
    times = device_times(read_history(out / "journal.jsonl"))
    wall = float(run["wall_seconds"])
    return {
        "wall": wall,
        "rounds": len(run["rounds"]),
        "waiting": mean_waiting(times),
        "computing": statistics.mean(time.computing for time in times),
        "scheduling": 100 * run["overhead_seconds"]["scheduling"] / wall,
        "checkpoint": 100 * run["overhead_seconds"]["checkpoint"] / wall,
        "reforming": 100 * run["overhead_seconds"]["reforming"] / wall,
    }


def summary(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Medians, spreads, ratios pair by pair, and whether the bars are met."""
    gains = {name: [base["wall"] / own["wall"] for base, own in zip(runs["baseline"], runs[name])] for name in POLICIES}
    gain = {name: statistics.median(values) for name, values in gains.items()}
    worst = {key: max(run[key] for name in POLICIES for run in runs[name]) for key in ("scheduling", "checkpoint")}
    bars = [
        bar(
            "flotilla / baseline, median gain",
            gain["flotilla"],
            f">= {PAPERS_SMALLEST_GAIN}",
            gain["flotilla"] >= PAPERS_SMALLEST_GAIN,
        ),
        bar(
            "homogeneous / baseline, median gain",
            gain["homogeneous"],
            "< 1.12",
            gain["homogeneous"] < PAPERS_SMALLEST_GAIN,
        ),
        bar("coordinator's own cost, worst, percent of a run", worst["scheduling"], "< 1", worst["scheduling"] < 1),
        bar(
            "checkpoints, worst, percent of a run",
            worst["checkpoint"],
            "< 6.3",
            worst["checkpoint"] < PAPERS_WORST_CHECKPOINTS,
        ),
    ]
    rows = [row(name, runs[name], gains[name]) for name in POLICIES]
    title = (
        f"{NETWORKS} networks, {NODES} x {DEVICES_PER_NODE} devices, rates {SLOWEST:.0f} to {FASTEST:.0f} samples/s, "
        f"time scale {TIME_SCALE}"
    )
    return {"bars": bars, "tables": [{"title": title, "columns": COLUMNS, "rows": rows}], "runs": runs}


def row(name: str, runs: list[dict[str, Any]], gains: list[float]) -> list[Any]:
    def median(key: str) -> float:
        return float(statistics.median(run[key] for run in runs))

    walls = [run["wall"] for run in runs]
    spread, gain = max(walls) - min(walls), statistics.median(gains)
    figures = ("waiting", "computing", "checkpoint", "reforming", "scheduling")
    own = [name, median("wall"), spread, gain, min(gains), max(gains), int(median("rounds"))]
    return own + [median(key) for key in figures]
