"""A run of many epochs: whether the last ones cost what the first ones did, in time, memory, files and shared memory.

One small network on two trainers, through `fleet run`. Ranks are looked at from outside, as a cluster's monitor does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import IO, Any

import psutil
import torch
from torch.utils.data import TensorDataset

from benchmarks.bars import Bar, at_most, bar
from benchmarks.rank_processes import end, ranks
from benchmarks.written_spec import write_spec

ROOT = Path(__file__).resolve().parents[1]
EPOCHS, STEPS = 20_000, 10
WORKERS, BATCH = 2, 32
WINDOW = 1_000
"""Epochs that are held against each other: the first after as many to warm up, and the last."""
PAUSE_SECONDS = 0.5
LIMIT_SECONDS = 0.5
"""Of an epoch: a run that takes longer is ended."""
LONGER, LARGER = 1.05, 1.02


def samples(train: bool) -> TensorDataset:
    """Return a data set of just as many steps, or a held-out one of a step."""
    generator = torch.Generator().manual_seed(0)
    count = WORKERS * BATCH * (STEPS if train else 1)
    return TensorDataset(
        torch.randn((count, 64), generator=generator), torch.randint(10, (count,), generator=generator)
    )


@dataclass(frozen=True)
class Look:
    """How a run stands at a moment.

    cpu, resident, files: of each rank, by its number: seconds, bytes, open files.
    shared: bytes of /dev/shm that they use.
    """

    epoch: int
    cpu: dict[int, float]
    resident: dict[int, int]
    files: dict[int, int]
    shared: int


@dataclass
class Soaked:
    """What came of a run.

    times: seconds since its start at which each epoch ended. looks: in their order. exit_code: the command's.
    """

    times: list[float] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    exit_code: int = 1
    words: str = ""


def main(repetitions: int = 0) -> dict[str, Any]:
    """Run it, and hold its last epochs against its first.

    Args:
        repetitions: epochs, if not EPOCHS.
    """
    epochs = repetitions or EPOCHS
    with tempfile.TemporaryDirectory(prefix="fleet-soak-") as name:
        found = soaked(Path(name), epochs)
    return judged(found, epochs)


def soaked(folder: Path, epochs: int) -> Soaked:
    """Train so many epochs in a folder, looking at the ranks meanwhile."""
    source = {"source": "benchmarks.soak:samples"}
    job = {
        "name": "mlp", "data": "noise", "loss": "cross_entropy", "metrics": ["accuracy"],
        "model": {"name": "trainers.zoo:MLP", "arguments": {"inputs": 64, "widths": [64], "classes": 10}},
        "optimizer": {"name": "SGD", "arguments": {"lr": 0.001, "momentum": 0.9}},
        "virtual_workers": WORKERS, "batch_size": BATCH, "stop": {"epochs": epochs, "patience": epochs},
    }  # fmt: skip
    data = {kind: {**source, "arguments": {"train": kind == "train"}} for kind in ("train", "held_out")}
    spec = {
        "name": "soak", "seed": 1, "data": {"noise": data}, "jobs": [job], "policy": {"name": "malleable"},
        "resources": {"trainers": 2, "preprocessors": 1},
    }  # fmt: skip
    path = write_spec(folder, spec, {"mlp": {1: 10_000.0, 2: 20_000.0}})
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "fleet", "run", str(path), "--out", str(folder / "run")]
    with (folder / "words").open("wb") as words:
        process = subprocess.Popen(command, cwd=folder, env=variables, stdout=words, stderr=words)
        try:
            found = _watched(process, folder / "run" / "journal.jsonl", epochs)
        finally:
            end(process)
    found.words = (folder / "words").read_text()[-2000:]
    return found


def _watched(process: subprocess.Popen[bytes], journal: Path, epochs: int) -> Soaked:
    found, limit = Soaked(), time.monotonic() + 120 + LIMIT_SECONDS * epochs
    file: IO[str] | None = None
    members: dict[int, psutil.Process] = {}
    while time.monotonic() < limit:
        code = process.poll()
        if file is None and journal.exists():
            file = journal.open()
        for line in file or ():
            if '"event":"epoch"' in line.replace(" ", ""):
                found.times.append(json.loads(line)["t"])
        if code is not None:
            found.exit_code = code
            break
        if found.times and len(members) < 4:
            members = {int(each.environ()["OMPI_COMM_WORLD_RANK"]): each for each in ranks(process)}
        if found.times and (found.looks[-1].epoch if found.looks else 0) < len(found.times):
            with suppress(psutil.Error, OSError):  # they may be ending
                found.looks.append(_look(len(found.times), members))
        time.sleep(PAUSE_SECONDS)
    if file is not None:
        file.close()
    return found


def _look(epoch: int, members: dict[int, psutil.Process]) -> Look:
    cpu, resident, files = {}, {}, {}
    for rank, process in sorted(members.items()):
        with process.oneshot():
            times = process.cpu_times()
            cpu[rank], resident[rank], files[rank] = (
                times.user + times.system,
                process.memory_info().rss,
                process.num_fds(),
            )
    return Look(epoch, cpu, resident, files, _shared_bytes(members))


def _shared_bytes(members: dict[int, psutil.Process]) -> int:
    """Return the size of all files of /dev/shm that the ranks have in their memory; others use the folder, too."""
    paths = set[str]()
    for process in members.values():
        lines = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
        paths |= {line[line.index("/dev/shm/") :] for line in lines if "/dev/shm/" in line}
    return sum(os.stat(path).st_size for path in paths if os.path.exists(path))


def judged(found: Soaked, epochs: int) -> dict[str, Any]:
    """Return the bars, and a table of both windows."""
    window = min(WINDOW, epochs // 4)
    first, last = (window, 2 * window), (epochs - window, epochs)
    ended = bar(
        "epochs that ended", len(found.times), f"== {epochs}", len(found.times) == epochs and not found.exit_code
    )
    if not ended["ok"]:
        return {"bars": [ended], "tables": [], "notes": [found.words]}
    early, late = (_looks_in(found.looks, each) for each in (first, last))
    wall = [(found.times[stop - 1] - found.times[start - 1]) / window for start, stop in (first, last)]
    cpu = [_cpu_an_epoch(each) for each in (early, late)]
    bars: list[Bar] = [
        ended,
        at_most("wall time an epoch, last by first", round(wall[1] / wall[0], 3), LONGER),
        at_most("CPU time an epoch, last by first, all ranks", round(cpu[1] / cpu[0], 3), LONGER),
    ]
    rows: list[list[Any]] = [["ms an epoch", *(round(each * 1e3, 2) for each in wall)]]
    rows += [["ms of CPU an epoch", *(round(each * 1e3, 2) for each in cpu)]]
    for rank in early[0].resident:
        sizes = [median(look.resident[rank] for look in each) for each in (early, late)]
        bars.append(at_most(f"memory of rank {rank}, last by first", round(sizes[1] / sizes[0], 3), LARGER))
        rows.append([f"MiB of rank {rank}", *(round(size / 2**20, 1) for size in sizes)])
    opened = max(late[-1].files[rank] - early[0].files[rank] for rank in early[0].files)
    shared = late[-1].shared - early[0].shared
    bars += [at_most("more open files of a rank", opened, 0), at_most("more bytes in /dev/shm", shared, 0)]
    table = {"title": f"windows of {window} epochs of {STEPS} steps", "columns": ["", "first", "last"], "rows": rows}
    return {"bars": bars, "tables": [table]}


def _looks_in(looks: Sequence[Look], epochs: tuple[int, int]) -> list[Look]:
    return [look for look in looks if epochs[0] <= look.epoch <= epochs[1]]


def _cpu_an_epoch(looks: Sequence[Look]) -> float:
    begun, ended = looks[0], looks[-1]
    return (sum(ended.cpu.values()) - sum(begun.cpu.values())) / (ended.epoch - begun.epoch)
