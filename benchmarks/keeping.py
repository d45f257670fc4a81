"""Which prepared samples are kept: decodes against Belady's rule with full knowledge, and what choosing costs.

Eight streams read one data set, each with a seed of its own, at paces from 1x to 4x; they begin at different times,
pause for a while, and end. A quarter of the samples may be kept.
"""

from __future__ import annotations

import heapq
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.bars import Bar, bar, median_bar
from preprocess.samples.layout import Indices
from preprocess.samples.order import epoch_order
from preprocess.store.futures import KnownFutures, Paces
from preprocess.store.sample_store import Keeper

SAMPLES, STREAMS, EPOCHS, SLOT = 20_000, 8, 5, 64
FRACTION = 0.25
REPETITIONS = 3
MOST_OF_BELADY, MOST_MICROSECONDS, MOST_BYTES = 1.10, 3.0, 16.0
PAUSE = (0.2, 0.6)  # epochs at pace 1 that a pause lasts


@dataclass(frozen=True)
class Reading:
    """A slot's samples, read by a stream at a time (in samples at pace 1)."""

    at: float
    stream: int
    epoch: int
    start: int


def main(repetitions: int = 0) -> dict[str, Any]:
    """Play drawn readings; returns {"bars": [...], "tables": [...]}."""
    rounds = [_round(number) for number in range(repetitions or REPETITIONS)]
    ratios, costs = [r["keeper"] / r["belady"] for r in rounds], [r["microseconds"] for r in rounds]
    bars: list[Bar] = [
        median_bar(
            "decodes, of Belady's with full knowledge", ratios, f"<= {MOST_OF_BELADY}", max(ratios) <= MOST_OF_BELADY
        ),
        median_bar(
            "choosing, CPU us an access",
            costs,
            f"<= {MOST_MICROSECONDS:g}",
            float(np.median(costs)) <= MOST_MICROSECONDS,
        ),
        bar("bytes a sample and stream", taken := _bytes(), f"<= {MOST_BYTES:g}", taken <= MOST_BYTES),
    ]
    rows = [[number, *(r[name] for name in ("keeper", "belady", "lru"))] for number, r in enumerate(rounds)]
    title = f"decodes an access, {STREAMS} streams, {FRACTION:g} of {SAMPLES:,} samples kept, {EPOCHS} epochs"
    table = {
        "title": title,
        "columns": ["draw", "kept by what is known", "Belady, all known", "last read"],
        "rows": rows,
    }
    return {"bars": bars, "tables": [table]}


def _round(number: int) -> dict[str, float]:
    orders = [
        [epoch_order(SAMPLES, 100 * stream + number, epoch) for epoch in range(EPOCHS)] for stream in range(STREAMS)
    ]
    readings = _readings(np.random.default_rng([7, number]))
    read = [orders[r.stream][r.epoch][r.start : r.start + SLOT] for r in readings]
    accesses = sum(map(len, read))
    misses, seconds = _kept(orders, readings, number)
    flat, room = np.concatenate(read), int(FRACTION * SAMPLES)
    found = {"keeper": misses, "belady": _belady(flat, room), "lru": _last_read(flat, room)}
    return {name: count / accesses for name, count in found.items()} | {"microseconds": 1e6 * seconds / accesses}


def _readings(draw: np.random.Generator) -> list[Reading]:
    """All slots in the order of time."""
    found: list[Reading] = []
    slots = -(-SAMPLES // SLOT)
    for stream in range(STREAMS):
        pace = 4.0 ** (stream / (STREAMS - 1))
        pauses = {int(slot): SAMPLES * draw.uniform(*PAUSE) for slot in draw.integers(slots * EPOCHS, size=2)}
        at = SAMPLES * draw.uniform(0, 2.5)
        for slot in range(slots * EPOCHS):
            at += SLOT / pace + pauses.get(slot, 0.0)
            found.append(Reading(at, stream, slot // slots, slot % slots * SLOT))
    return sorted(found, key=lambda reading: reading.at)


def _kept(orders: list[list[Indices]], readings: list[Reading], number: int) -> tuple[int, float]:
    """Decodes, and CPU seconds of choosing: all but making the orders."""
    futures = KnownFutures(SAMPLES, STREAMS)
    keeper = Keeper(futures, int(FRACTION * SAMPLES), np.random.default_rng([8, number]))
    sizes, paces = np.ones(SLOT, np.int64), Paces(STREAMS)
    misses, begin = 0, time.process_time()
    for reading in readings:
        stream, epoch = reading.stream, reading.epoch
        after = orders[stream][epoch + 1] if epoch + 1 < EPOCHS else None
        if reading.start == 0:
            if epoch == 0:
                futures.open(stream, orders[stream][0], after)
            else:
                futures.next_epoch(stream, after)
        samples = orders[stream][epoch][reading.start : reading.start + SLOT]
        paces.read(stream, len(samples), reading.at)
        futures.at_paces(paces.seconds(reading.at))
        futures.read(stream, samples)
        new = samples[~keeper.holds(samples)]
        keeper.choose(new, sizes[: len(new)])
        misses += len(new)
        if after is None and reading.start + SLOT >= SAMPLES:
            futures.close(stream)
            paces.forget(stream)
    return misses, time.process_time() - begin


def _belady(accesses: Indices, room: int) -> int:
    """Misses of Belady's rule, which knows all accesses and may keep nothing of what it has read."""
    following = np.full(len(accesses), len(accesses), np.int64)
    order = np.argsort(accesses, kind="stable")
    same = accesses[order[:-1]] == accesses[order[1:]]
    following[order[:-1][same]] = order[1:][same]
    kept: dict[int, int] = {}
    heap: list[tuple[int, int]] = []
    misses = 0
    for sample, then in zip(accesses.tolist(), following.tolist()):
        misses += sample not in kept
        kept[sample] = then
        heapq.heappush(heap, (-then, sample))
        while len(kept) > room:
            at, latest = heapq.heappop(heap)
            if kept.get(latest) == -at:
                del kept[latest]
    return misses


def _last_read(accesses: Indices, room: int) -> int:
    """Misses where what was read last is kept."""
    kept: OrderedDict[int, None] = OrderedDict()
    misses = 0
    for sample in accesses.tolist():
        misses += sample not in kept
        kept[sample] = None
        kept.move_to_end(sample)
        if len(kept) > room:
            kept.popitem(last=False)
    return misses


def _bytes() -> float:
    """Of the index, beside the orders that data sets keep."""
    futures = KnownFutures(SAMPLES, STREAMS)
    order = np.arange(SAMPLES)
    for stream in range(STREAMS):
        futures.open(stream, order, order)
    keeper = Keeper(futures, SAMPLES, np.random.default_rng(0))
    keeper.choose(order, np.ones(SAMPLES, np.int64))
    return (futures.nbytes + keeper.nbytes) / (SAMPLES * STREAMS)
