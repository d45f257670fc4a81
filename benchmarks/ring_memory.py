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
import torch

from benchmarks.pictures import pictures
from fleet.workers.feed import BatchFeed, Reading, Share, StepBatches
from preprocess import Dataset, SharedLoader
from preprocess.making.preprocessor import Preprocessor
from preprocess.ring.lane_memory import RingShape, lane_bytes
from preprocess.ring.ring import Ring
from preprocess.samples.stream import LaneSchedule, LaneSpec, StreamKey
from trainers import BatchPlan

__all__ = ["Memory", "memory_of", "memory_of_feed"]

BATCH, SLOT = 256, 64
MOST_BATCHES = 6


@dataclass(frozen=True)
class Memory:
    """Bytes on a node.

    Attributes:
        ring: holds the samples that all share.
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


def memory_of_feed(data: Path, workers: int = 4) -> float:
    """Return the most that a trainer holds of its own while its virtual workers take their batches, in batches.

    A batch is what all of them take together in a step, 256 images.
    """
    command = [sys.executable, "-m", "benchmarks.ring_memory", json.dumps({"data": str(data), "workers": workers})]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, stdin=subprocess.DEVNULL)
    return float(done.stdout)


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


def _feed(arguments: dict[str, Any]) -> None:
    """Be one trainer and its preprocessor: print the most batches that were held beside the ring."""
    dataset = Dataset(pictures(Path(arguments["data"])))
    workers = arguments["workers"]
    plan = BatchPlan(dataset.length, workers, BATCH // workers)
    schedule = LaneSchedule(dataset.length, plan.padded - dataset.length)
    size = lane_bytes(dataset.layout, 2 * BATCH, SLOT, 1)
    ring = Ring.forked(RingShape(1, -(-size // 4096) * 4096, SLOT, 1, 1))  # shared pages: not counted
    lane = ring.lanes[0]
    lane.open(dataset.layout, [0], 1)
    preprocessor = Preprocessor(ring, 0, {dataset.name: dataset})
    preprocessor.open_lane(LaneSpec(0, 1, StreamKey(dataset.name, 0, 0), schedule, dataset.layout, {0: (0,)}))
    while preprocessor.step():  # the ring is full
        pass
    share = Share(plan, range(workers), 0, (0,), BATCH)
    reader = lane.reader(0, dataset.layout, 1)
    feed = BatchFeed(reader, schedule, share, (0, 0), torch.device("cpu"), Reading(), timeout=60.0)
    before, most = _private_bytes(), 0
    for _ in range(2):
        step = feed.next()
        assert isinstance(step, StepBatches)
        for read in step.batches:
            batch = read() if callable(read) else read
            most = max(most, _private_bytes() - before)
            del batch
    print(most / (BATCH * dataset.layout.input_bytes))


def _endlessly(loader: Any) -> Any:
    while True:
        yield from loader


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    _feed(given) if "workers" in given else _take_part(given)
