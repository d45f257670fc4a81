"""A rehearsal on ever more trainer ranks: how long they take to start, and what rank 0 does for each of them.

Ranks, messages, plans, groups and the data path are real; a device's compute is a wait. All ranks share this machine's
cores, so start-up here is the machine's, and not that of a cluster. What rank 0 spends for a network's epoch, a plan
and a move is its own, and tells how many trainers one coordinator can serve.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.bars import at_most
from benchmarks.clouds import WIDTH
from benchmarks.rank_processes import end, ranks
from benchmarks.written_spec import write_spec
from fleet.journal.events import Epoch, Formed, Started
from fleet.journal.journal import read_journal

ROOT = Path(__file__).resolve().parents[1]
TRAINERS = (4, 16, 64)
PER_NODE = 4
EPOCHS, SAMPLES, BATCH = 4, 240, 4
EPOCH_SECONDS = 6.0  # of one network on one device, so that a rank's core is idle most of the time
RUN_SECONDS = 900.0
COLUMNS = [
    "trainers", "networks", "to the first session s", "to the first start s", "run s", "rank 0 CPU s",
    "CPU ms an epoch", "groups formed", "memory of a rank MiB",
]  # fmt: skip


def main(repetitions: int = 0) -> dict[str, Any]:
    """One rehearsal for each number of trainers, up to the `repetitions`-th if that is given."""
    rows = []
    for trainers in TRAINERS[: repetitions or len(TRAINERS)]:
        with tempfile.TemporaryDirectory(prefix="fleet-scaling-") as name:
            rows.append(_row(trainers, Path(name)))
            print(f"{trainers} trainers: {dict(zip(COLUMNS, rows[-1]))}", file=sys.stderr, flush=True)
    first, last = rows[0], rows[-1]
    grown = last[6] / first[6]
    return {
        "bars": [at_most(f"rank 0's work for an epoch, {last[0]} trainers over {first[0]}", grown, 2)],
        "tables": [{"title": "rehearsals on one machine", "columns": COLUMNS, "rows": rows}],
        "notes": [f"all ranks on {psutil.cpu_count()} cores; pretend nodes of {PER_NODE} devices"],
    }


def _row(trainers: int, folder: Path) -> list[Any]:
    spec, out = _write_spec(folder, trainers), folder / "out"
    command = [sys.executable, "-m", "fleet", "run", str(spec), "--out", str(out), "--rehearse"]
    command += ["--cluster", f"{trainers // PER_NODE}x{PER_NODE}", "--policy", "malleable"]
    begin, memory, session = time.monotonic(), 0.0, 0.0
    with open(folder / "log", "w+") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        while process.poll() is None:
            if not session and (out / "journal.jsonl").exists():
                session = time.monotonic() - begin
            memory = memory or _memory(process, trainers) if session else 0.0
            if time.monotonic() - begin > RUN_SECONDS:
                end(process)
            time.sleep(0.2)
        if process.returncode != 0:
            log.seek(0)
            raise RuntimeError(f"{trainers} trainers: exit code {process.returncode}\n{log.read()[-2000:]}")
    events = list(read_journal(out / "journal.jsonl"))
    cpu = json.loads((out / "run.json").read_text())["overhead_seconds"]["scheduling"]
    epochs = sum(isinstance(event, Epoch) for event in events)
    formed = sum(isinstance(event, Formed) for event in events)
    started = next(event.t for event in events if isinstance(event, Started))
    return [
        trainers, 2 * trainers, round(session, 1), round(started, 2), round(events[-1].t, 1), round(cpu, 2),
        round(1000 * cpu / epochs, 2), formed, round(memory),
    ]  # fmt: skip


def _memory(launcher: subprocess.Popen[bytes], trainers: int) -> float:
    """MiB that a rank has for itself on average, once all of them are there."""
    alive = ranks(launcher)
    if len(alive) <= trainers:
        return 0.0
    try:
        return float(sum(each.memory_full_info().uss for each in alive)) / len(alive) / 2**20
    except psutil.Error:
        return 0.0


def _write_spec(folder: Path, trainers: int) -> Path:
    """Two networks a trainer, of four virtual workers, so that there are two rounds at least."""
    rate = SAMPLES / EPOCH_SECONDS
    names = [f"net-{index:03}" for index in range(2 * trainers)]
    spec = {
        "name": "scaling",
        "data": {"clouds": {"train": {"source": "benchmarks.clouds:Clouds", "arguments": {"count": SAMPLES}}}},
        "defaults": {
            "data": "clouds",
            "model": {"name": "trainers.zoo:MLP", "arguments": {"inputs": WIDTH, "widths": [8], "classes": 3}},
            "optimizer": {"name": "SGD", "arguments": {"lr": 0.1}},
            "loss": "cross_entropy",
            "virtual_workers": 4,
            "batch_size": BATCH,
            "stop": {"epochs": EPOCHS},
        },
        "jobs": [{"name": name} for name in names],
        "rehearse": {"rates": {name: {m: rate * m**0.9 for m in (1, 2, 4)} for name in names}, "time_scale": 1.0},
    }
    return write_spec(folder, spec)
