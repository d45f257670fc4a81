"""Networks of one node that read the same pictures in different orders, by one service that keeps what it has prepared.

Each network is a process: `python -m benchmarks.store_readers ARGUMENTS`; it reads an epoch when it is told to. What is
counted is the processor time of all processes involved, start-up left out: a group begins when the service rests.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks.counted_pictures import counted
from benchmarks.feeding import BATCH, Cost, answer, cpu_of, tell
from benchmarks.pictures import pictures

__all__ = ["Group", "Readers", "readers"]

_REST_SECONDS, _LOOKS = 0.2, 3  # a service rests when it has used nothing between so many looks
_START_SECONDS = 120.0


@dataclass(frozen=True)
class Group:
    """K networks and what they read.

    Attributes:
        count: K.
        seeds: network k reads the order of seed k; otherwise all read seed 0's.
        epochs: network k begins with epoch k + 1; otherwise all with epoch 0.
        folds: each leaves out a part of the stream that all read, 1 of K: what it takes is counted alone.
        held_out: they read the held-out samples.
        store: GiB for prepared samples; None: as the service chooses.
        note: a file in which each reading of a picture is noted; empty: none is.
    """

    count: int
    seeds: bool = False
    epochs: bool = False
    folds: bool = False
    held_out: bool = False
    store: float | None = None
    note: str = ""


class Readers:
    """The processes of a group.

    Args:
        group: what they read.
        data: the file of pictures.
    """

    def __init__(self, group: Group, data: Path) -> None:
        given = {"group": asdict(group), "data": str(data), "name": f"{data.stem}-kept-{time.time_ns()}"}
        self._processes = [_start({**given, "number": number}) for number in range(group.count)]
        for process in self._processes:
            answer(process)
        self._await_rest()

    def epoch(self) -> Cost:
        """Let all read one epoch."""
        before, begin = self._cpu_seconds(), time.perf_counter()
        for process in self._processes:
            tell(process, "epoch")
        read = [answer(process) for process in self._processes]
        wall = time.perf_counter() - begin
        return Cost((self._cpu_seconds() - before) / max(sum(read), 1), wall, min(read))

    def close(self) -> None:
        """End all."""
        for process in self._processes:
            process.kill()
            process.wait()

    def _await_rest(self) -> None:
        """Wait until the service has made room for what it keeps, which belongs to the start."""
        deadline, quiet, before = time.monotonic() + _START_SECONDS, 0, self._cpu_seconds()
        while quiet < _LOOKS and time.monotonic() < deadline:
            time.sleep(_REST_SECONDS)
            now = self._cpu_seconds()
            quiet, before = quiet + 1 if now - before < 0.02 else 0, now

    def _cpu_seconds(self) -> float:
        roots = [psutil.Process(process.pid) for process in self._processes]
        services = [
            other for other in psutil.process_iter(["cmdline"]) if "preprocess.sharing" in (other.info["cmdline"] or ())
        ]
        return sum(map(cpu_of, [*roots, *services]))


@contextmanager
def readers(group: Group, data: Path) -> Iterator[Readers]:
    """Start a group, and end it."""
    running = Readers(group, data)
    try:
        yield running
    finally:
        running.close()


def _start(arguments: dict[str, object]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.store_readers", json.dumps(arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _take_part() -> None:
    """Be one network: read an epoch for each line on standard input."""
    import torch

    from preprocess import SharedLoader

    torch.set_num_threads(1)
    given = json.loads(sys.argv[1])
    group, number, data = Group(**given["group"]), given["number"], Path(given["data"])
    loader = SharedLoader(
        counted(data, group.note) if group.note else pictures(data),
        BATCH,
        seed=number if group.seeds else 0,
        held_out=group.held_out,
        readers=group.count,
        name=given["name"],
        store=group.store,
        linger=0.5,
        prepare=lambda images, targets: (targets.clone(),),
    )
    if group.epochs:
        loader.set_epoch(number + 1)
    print("images 0", flush=True)
    for _ in sys.stdin:
        images = sum(len(batch[0]) for batch in loader)
        print("images", images - images // group.count if group.folds else images, flush=True)


if __name__ == "__main__":
    _take_part()
