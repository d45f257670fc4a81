"""Samples prepared once whatever the seed, the epoch and the evaluation: processor time against a DataLoader a network.

The networks of a node read JPEG pictures of 256 px, cut out at random, scaled to 224 px and flipped; they differ in
their seeds, or in the epoch in which they are. Larger pictures, of 500x375, stand beside them. What is counted, is
counted at the source. What to keep, when to join a lane, token ids, ragged samples, data in blocks and other
libraries on the same work have benchmarks of their own, whose bars and tables are here too.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import blocks, joining, keeping, peers, ragged, tokens
from benchmarks.bars import bar, median_bar
from benchmarks.counted_pictures import times_read
from benchmarks.feeding import networks
from benchmarks.pictures import FILE_SIDE, write_pictures
from benchmarks.store_readers import Group, readers
from benchmarks.three_hosts import measure as measure_hosts

IMAGES = 1024
NETWORKS = 8
EPOCHS = 5
REPETITIONS = 3
LARGE = (375, 500)
FOLDS = 5
EVALUATIONS = 8
TABLE = [
    "way",
    "first epoch, CPU us an image and network",
    "later ones",
    "mean of five",
    "times fewer than DataLoaders'",
]

Figures = dict[str, Any]
Costs = dict[str, list[list[float]]]
"""way -> repetition -> CPU seconds an image and network, by epoch."""


def main(repetitions: int = 0) -> Figures:
    """Measure all; returns {"bars": [...], "tables": [...]}."""
    result: Figures = {"bars": [], "tables": [], "images": IMAGES}
    with tempfile.TemporaryDirectory(prefix="sharing-") as folder:
        small, large = Path(folder, "256"), Path(folder, "500x375")
        small.mkdir()
        large.mkdir()
        data = write_pictures(small, IMAGES)
        costs = _costs(data, repetitions or REPETITIONS, _quarter(IMAGES, FILE_SIDE, FILE_SIDE))
        _judge(costs, result)
        result["tables"].append(_table(f"{IMAGES} pictures of 256 px, {NETWORKS} networks", costs))
        beside = _costs(write_pictures(large, IMAGES // 2, size=LARGE), 1, _quarter(IMAGES // 2, *LARGE))
        result["tables"].append(_table(f"{IMAGES // 2} pictures of 500x375, {NETWORKS} networks", beside))
        for part in (_counted, _evaluations):
            part(data, result)
    _hosts(result)
    for other in (keeping.main(1), joining.main(), tokens.main(1), ragged.main(), blocks.main(), peers.main(1)):
        result["bars"] += other["bars"]
        result["tables"] += other["tables"]
        result.setdefault("notes", []).extend(other.get("notes", []))
    return result


def _costs(data: Path, repetitions: int, quarter: float) -> Costs:
    """Every way in turn, again and again; `quarter`: GiB for a fourth of the pictures."""
    ways = WAYS | {QUARTER: _group(Group(NETWORKS, seeds=True, store=quarter))}
    costs: Costs = {}
    for _ in range(repetitions):
        for way, measure in ways.items():
            costs.setdefault(way, []).append(measure(data))
    return costs


def _quarter(images: int, height: int, width: int) -> float:
    """GiB of a fourth of so many pictures, decoded."""
    return 0.25 * images * height * width * 3 / 2**30


def _loaders(data: Path) -> list[float]:
    with networks("loaders", NETWORKS, data) as running:
        return [running.epoch().cpu]


def _group(group: Group) -> Callable[[Path], list[float]]:
    def measure(data: Path) -> list[float]:
        with readers(group, data) as running:
            return [running.epoch().cpu for _ in range(EPOCHS)]

    return measure


QUARTER = "a seed each, a quarter kept"
WAYS: dict[str, Callable[[Path], list[float]]] = {
    "a DataLoader each": _loaders,
    "one stream for all": _group(Group(NETWORKS)),
    "five folds of one stream": _group(Group(FOLDS, folds=True)),
    "a seed each": _group(Group(NETWORKS, seeds=True)),
    "an epoch each": _group(Group(NETWORKS, epochs=True)),
}


def _judge(costs: Costs, result: Figures) -> None:
    """How many times fewer processor seconds each way takes than DataLoaders, by repetition."""
    own = [epochs[0] for epochs in costs["a DataLoader each"]]

    def judge(name: str, way: str, cost: Callable[[list[float]], float], times: float) -> None:
        ratios = [loaders / cost(epochs) for loaders, epochs in zip(own, costs[way])]
        wanted = f">= {times:g}"
        result["bars"].append(median_bar(name, ratios, wanted, statistics.median(ratios) >= times))

    later, mean = (lambda epochs: statistics.mean(epochs[1:])), statistics.mean
    judge("one stream for all, as weight seeds read it: times fewer", "one stream for all", later, 10)
    judge("a seed each, from the second epoch on: times fewer", "a seed each", later, 6)
    judge("a seed each, five epochs: times fewer", "a seed each", mean, 5.3)
    judge("an epoch each, five epochs: times fewer", "an epoch each", mean, 5.3)
    judge("five folds of one stream, five epochs: times fewer", "five folds of one stream", mean, 5)
    judge("a seed each, a quarter kept, five epochs: times fewer", QUARTER, mean, 2.2)


def _table(title: str, costs: Costs) -> dict[str, Any]:
    own = statistics.median(epochs[0] for epochs in costs["a DataLoader each"])
    rows = []
    for way, found in costs.items():
        first = 1e6 * statistics.median(epochs[0] for epochs in found)
        later = 1e6 * statistics.median(statistics.mean(epochs[1:] or epochs) for epochs in found)
        mean = 1e6 * statistics.median(map(statistics.mean, found))
        rows.append([way, first, later, mean, 1e6 * own / mean])
    return {"title": title, "columns": TABLE, "rows": rows}


def _counted(data: Path, result: Figures) -> None:
    """Each picture is decoded once by all networks together, in all epochs."""
    note = str(data.with_suffix(".note"))
    with readers(Group(NETWORKS, seeds=True, note=note), data) as running:
        for _ in range(2):
            running.epoch()
    once = sum(times == 1 for times in times_read(note, IMAGES).values())
    result["bars"].append(bar("a seed each: pictures decoded exactly once", once, f"= {IMAGES}", once == IMAGES))


def _evaluations(data: Path, result: Figures) -> None:
    """Held-out pictures, scaled and cut out of the middle, by one network again and again."""
    with readers(Group(1, held_out=True), data) as running:
        first = running.epoch().cpu
        later = statistics.mean(running.epoch().cpu for _ in range(EVALUATIONS))
    times = first / later
    result["bars"].append(bar("evaluations after the first: times fewer CPU seconds", times, ">= 10", times >= 10))


def _hosts(result: Figures) -> None:
    """Three hosts that keep a third each."""
    measured = measure_hosts(hosts=3, preprocessors=3, readers_per_host=2, images=2000, epochs=3, kept=True)
    if "skipped" in measured:
        result["hosts"] = [measured["skipped"]]
        return
    once, pictures = measured["decoded_once"], measured["pictures"]
    most = max(max(host["in_ratio"], host["out_ratio"]) for host in measured["hosts"])
    result["bars"] += [
        bar("3 hosts: pictures read exactly once in three epochs", once, f"= {pictures}", once == pictures),
        bar("3 hosts: bytes over a host's network, of the stream's", most, "<= 1.05", most <= 1.05),
        bar("3 hosts: readers with the right bytes", measured["right_bytes"], "= 6", measured["right_bytes"] == 6),
    ]
