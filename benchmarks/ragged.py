"""Ragged samples in the ring: the bytes of padding, and how many samples it holds beside a ring of equal places."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.bars import at_most
from benchmarks.ragged_sets import KINDS
from fleet.workers.datasets import PackedData
from preprocess import Dataset, DatasetSpec, SourceSpec
from preprocess.making.preprocessor import Preprocessor
from preprocess.ring.lane_memory import RingShape, lane_bytes, slots_that_fit
from preprocess.ring.ring import LaneReader, Ring
from preprocess.samples.stream import LaneSchedule, LaneSpec, StreamKey

SAMPLES = 4096
PLANNED = 256  # samples of equal places in rings of the size that is measured
SLOT = 32
_SECONDS = 60.0
COLUMNS = ["samples", "mean bytes", "most bytes", "padding, %", "table, %", "held", "of equal places", "times"]


def main(repetitions: int = 0) -> dict[str, Any]:
    """Count, once for each kind of samples."""
    result: dict[str, Any] = {"bars": [], "tables": []}
    rows = []
    for kind in KINDS:
        row = _count(kind)
        rows.append([kind, *row])
        result["bars"].append(at_most(f"{kind}: padding in the ring, % of the bytes", row[2], 1))
    result["tables"].append({"title": f"{SAMPLES} samples, slots of {SLOT}", "columns": COLUMNS, "rows": rows})
    return result


def _count(kind: str) -> list[Any]:
    """The figures of one kind; the ring has the bytes of so many samples of equal places."""
    dataset = _opened(kind)
    equal = replace(dataset.layout, mean_bytes=None)
    size = lane_bytes(equal, PLANNED, SLOT, 1)
    ring = Ring.forked(RingShape(1, size, SLOT, 1, 1))
    ring.lanes[0].open(dataset.layout, [0], 1)
    maker = Preprocessor(ring, 0, {kind: dataset})
    schedule = LaneSchedule(dataset.length, last_epoch=0)
    maker.open_lane(LaneSpec(0, 1, StreamKey(kind, 0, 0), schedule, dataset.layout, {0: (0,)}))
    reader = ring.lanes[0].reader(0, dataset.layout, 1)
    while maker.step():
        pass
    held = maker.statistics.samples
    read = _read(reader, maker, dataset.length)
    packed = maker.statistics.packed[kind]
    taken = packed.samples + packed.padding
    places, table = slots_that_fit(equal, size, SLOT, 1) * SLOT, 100 * 16 * dataset.length / read
    return [read / dataset.length, equal.input_bytes, 100 * (taken - read) / taken, table, held, places, held / places]


def _opened(kind: str) -> Dataset:
    """The samples as a run packs them."""
    part = {"source": "benchmarks.ragged_sets:RaggedSet", "arguments": {"kind": kind, "count": SAMPLES}}
    source = f"{PackedData.__module__}:{PackedData.__qualname__}"
    return Dataset(DatasetSpec(kind, SourceSpec(source, {"part": part})))


def _read(reader: LaneReader, maker: Preprocessor, samples: int) -> int:
    """Read all samples, slot after slot, and return their bytes."""
    read = 0
    for start in range(0, samples, SLOT):
        stop = min(start + SLOT, samples)
        while maker.step():
            pass
        reader.wait(stop, _SECONDS)
        read += sum(sample.nbytes for sample in reader.take(np.arange(start, stop))[0])
        reader.release(start + SLOT)
    return read
