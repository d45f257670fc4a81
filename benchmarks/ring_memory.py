"""Memory of one node: the ring that all networks read, and what each of them holds of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.pictures import pictures

__all__ = ["Memory", "memory_of"]

BATCH = 256
MOST_BATCHES = 6


@dataclass(frozen=True)
class Memory:
    """Bytes on a node.

    Attributes:
        ring: of the samples that all share.
        private: the most that one network held of its own while it read, in batches.
    """

    ring: int
    private: float


def memory_of(networks: int, data: Path) -> Memory:
    """Let K processes read a few batches of 256 images with copies of their own, as they do without `prepare`."""
    arguments = json.dumps({"data": str(data), "networks": networks, "name": f"memory-{time.time_ns()}"})
    command = [sys.executable, "-m", "benchmarks.ring_memory", arguments]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(networks)]
    try:
        private = [float(_line(process)) for process in processes]
        ring = max(_shared_bytes(process.pid) for process in processes)
    finally:
        for process in processes:
            process.communicate(timeout=60)
    return Memory(ring, max(private))


def _line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode()


def _shared_bytes(pid: int) -> int:
    maps = psutil.Process(pid).memory_maps()
    return sum(found.rss for found in maps if found.path.startswith("/memfd:samples"))


def _private_bytes() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def _take_part(arguments: dict[str, Any]) -> None:
    """Be one network: print the most batches that were held, and stay until standard input ends."""
    from preprocess import SharedLoader

    spec, networks = pictures(Path(arguments["data"])), arguments["networks"]
    with SharedLoader(spec, BATCH, readers=networks, name=arguments["name"], buffer=2) as loader:
        before, most = 0, 0
        for number, batch in zip(range(MOST_BATCHES), _endlessly(loader)):
            size = batch[0].nbytes
            if number == 0:
                before = _private_bytes() - size
            most = max(most, _private_bytes() - before)
        print(most / size, flush=True)
        sys.stdin.read()


def _endlessly(loader: Any) -> Any:
    while True:
        yield from loader


if __name__ == "__main__":
    _take_part(json.loads(sys.argv[1]))
