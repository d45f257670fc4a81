"""The shared data path against a loader for each network, and its own costs.

FLEET (MLSys'20) and EasyScale (SC'23, 3.2) share what is prepared; TensorSocket (2024) does it for independent
processes. Here the networks of a node are fed with JPEG pictures of 256 px, cut out and scaled to 224 px.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import cv2

from benchmarks.bars import add_median
from benchmarks.feeding import Cost, Networks, NoAnswer, networks, ways_here
from benchmarks.handing_over import hand_over, memcpy_seconds
from benchmarks.pictures import write_pictures
from benchmarks.preparing import BareLoop, OnePreprocessor, randomness_share
from benchmarks.ring_memory import memory_of, memory_of_feed
from benchmarks.three_hosts import measure as measure_hosts

IMAGES = 1024
REPETITIONS = 5
SHARERS = {4: 4.0, 8: 7.0}  # K networks -> times fewer processor seconds than K DataLoaders
HAND_OVER_BATCHES = 300
HAND_OVER_READERS = 8
SLOT, TURNS = 64, 16
SPREAD = (statistics.median, min, max)

Figures = dict[str, Any]


def main(repetitions: int = 0) -> Figures:
    """Measure all; repetitions are interleaved."""
    repetitions = repetitions or REPETITIONS
    cv2.setNumThreads(1)
    result: Figures = {"bars": [], "tables": [], "images": IMAGES}
    with tempfile.TemporaryDirectory(prefix="data-path-") as folder:
        data = write_pictures(Path(folder), IMAGES)
        for part in (_sharing, _handing_over, _preparing, _memory, _between_hosts):
            part(data, repetitions, result)
    return result


def _sharing(data: Path, repetitions: int, result: Figures) -> None:
    """K networks fed by one service, by K DataLoaders, by TensorSocket where it is installed."""
    rows = []
    for count, times in SHARERS.items():
        costs = _feed(data, repetitions, count, result)
        loaders, shared = ([cost.cpu for cost in costs[way]] for way in ("loaders", "shared"))
        ratios = [own / one for own, one in zip(loaders, shared)]
        name = f"K = {count}: DataLoaders' CPU seconds an image and network, in multiples of the shared ones"
        add_median(result, name, ratios, f">= {times:g}", statistics.median(ratios) >= times)
        for way, found in costs.items():
            cpu = [1e6 * cost.cpu for cost in found]
            reached = min(cost.images for cost in found)
            walls = statistics.median(cost.wall for cost in found)
            rows.append([count, way, statistics.median(cpu), min(cpu), max(cpu), walls, reached])
    columns = ["K", "way", "CPU us an image and network", "least", "most", "wall s an epoch", "images that arrived"]
    result["tables"].append({"title": f"{IMAGES} pictures, one epoch", "columns": columns, "rows": rows})
    if "tensorsocket" not in ways_here():
        result["tensorsocket"] = ["not installed: pip install tensorsocket"]


def _feed(data: Path, repetitions: int, count: int, result: Figures) -> dict[str, list[Cost]]:
    """Costs of every epoch, the ways in turn; TensorSocket may get stuck, and is left out from there on."""
    costs: dict[str, list[Cost]] = {}
    with ExitStack() as stack:
        running: dict[str, Networks] = {}
        for way in ways_here():
            with _tolerating(way, count, result):
                running[way] = stack.enter_context(networks(way, count, data))
        for _ in range(repetitions):
            for way, group in running.items():
                with _tolerating(way, count, result):
                    costs.setdefault(way, []).append(group.epoch())
    return costs


@contextmanager
def _tolerating(way: str, count: int, result: Figures) -> Iterator[None]:
    try:
        yield
    except NoAnswer as error:
        if way != "tensorsocket":
            raise
        result.setdefault("tensorsocket", []).append(f"K = {count}: {error}")


def _handing_over(data: Path, repetitions: int, result: Figures) -> None:
    """A batch of 256 that is ready, handed to eight readers."""
    runs = [(hand_over(HAND_OVER_READERS, HAND_OVER_BATCHES), memcpy_seconds()) for _ in range(repetitions)]
    wall = [1e3 * run.wall for run, _ in runs]
    share = [100 * run.reader_cpu / copy for run, copy in runs]
    add_median(result, "hand-over of 256 images to 8 readers, ms", wall, "< 1", statistics.median(wall) < 1)
    name = "a reader's CPU seconds for it, percent of a memcpy of the batch"
    add_median(result, name, share, "< 2", statistics.median(share) < 2)


def _preparing(data: Path, repetitions: int, result: Figures) -> None:
    """One preprocessor against the bare loop, in turns of one slot."""
    makers: list[OnePreprocessor | BareLoop] = [
        OnePreprocessor(data),
        BareLoop(data, reads=True),
        BareLoop(data, reads=False),
    ]
    seconds: list[list[float]] = []
    ratios: list[float] = []
    for _ in range(repetitions):
        turns = [[maker.make(SLOT) for maker in makers] for _ in range(TURNS)]
        seconds.append([statistics.median(turn) / SLOT for turn in zip(*turns)])
        # Turns that follow each other are compared: the machine's own speed changes within a repetition.
        ratios.append(statistics.median(loop / one for one, loop, _ in turns))
    ours, reading, bare = zip(*seconds)
    add_median(
        result, "one preprocessor, of the bare loop's throughput", ratios, ">= 0.95", statistics.median(ratios) >= 0.95
    )
    names = ("one preprocessor", "bare loop", "bare loop, bytes in memory")
    rows = [[name, *(1e6 * pick(found) for pick in SPREAD)] for name, found in zip(names, (ours, reading, bare))]
    columns = ["maker", "CPU us an image", "least", "most"]
    result["tables"].append({"title": "reading, decoding, augmentation", "columns": columns, "rows": rows})
    shares = [100 * randomness_share(data) for _ in range(repetitions)]
    name = "a sample's own generator, percent of its decoding and augmentation"
    add_median(result, name, shares, "<= 3", statistics.median(shares) <= 3)


def _memory(data: Path, repetitions: int, result: Figures) -> None:
    """The ring with one and with eight networks."""
    one, eight = memory_of(1, data), memory_of(8, data)
    ratio = eight.ring / one.ring
    add_median(result, "ring for 8 networks, of the ring for 1", [ratio], "<= 1.02", ratio <= 1.02)
    add_median(result, "a script's own memory for samples, batches", [eight.private], "< 2", eight.private < 2)
    trainer = memory_of_feed(data)
    add_median(result, "a trainer's own memory for samples, batches", [trainer], "< 2", trainer < 2)


def _between_hosts(data: Path, repetitions: int, result: Figures) -> None:
    """Three hosts, each with a network interface of its own."""
    found = measure_hosts()
    result["three_hosts"] = found
    if "skipped" in found:
        return
    once = found["decoded_once"] / found["samples"] if found["samples_made"] == found["samples"] else 0.0
    add_median(result, "3 hosts: samples decoded exactly once", [once], "1", once == 1.0)
    ratios = [max(host["in_ratio"], host["out_ratio"]) for host in found["hosts"]]
    worst = max(ratios)
    add_median(result, "3 hosts: bytes through a host's network, of the data", [worst], "<= 1.05", worst <= 1.05)
