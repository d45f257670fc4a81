"""Data in chunks, shuffled sample by sample or block by block: how often chunks are read, and what a sample takes.

Four preprocessors make the samples of a stream, each with a cache that holds its part of a window and not much more.
Chunks are counted where they are read. Rings and hand-over are left out: they are alike for both orders.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr

from benchmarks.bars import bar
from preprocess import Dataset, DatasetSpec, OrderSpec, SourceSpec
from preprocess.samples.order import HELD_OUT, TRAIN
from preprocess.samples.stream import LanePortions, LaneSchedule, LaneSpec, StreamKey

CHUNKS, CHUNK, SIDE = 96, 64, 24  # a sample is a field of SIDE squared numbers
PREPROCESSORS, WINDOW, SLOT, EPOCHS = 4, 16, 32, 4
SAMPLES = CHUNKS * CHUNK
_CHUNK_MIB = CHUNK * (4 * SIDE**2 + 8) / 2**20
CACHE = 1.3 * WINDOW / PREPROCESSORS * _CHUNK_MIB
COLUMNS = ["data, order", "reads of a chunk in an epoch", "CPU us a sample"]


@dataclass(frozen=True)
class Measured:
    """What epochs took.

    Attributes:
        reads: of a chunk in an epoch, the mean.
        seconds: of processor time a sample.
    """

    reads: float
    seconds: float


def main(repetitions: int = 0) -> dict[str, Any]:
    """Measure both orders of both formats; returns {"bars": [...], "tables": [...]}."""
    result: dict[str, Any] = {"bars": [], "tables": [], "chunks": CHUNKS, "samples": SAMPLES}
    rows = []
    by_blocks = OrderSpec("blocks", WINDOW)
    with tempfile.TemporaryDirectory(prefix="blocks-") as folder:
        for name, source, chunks in _written(Path(folder)):
            apart = measure(source, None, chunks, 1)
            together = measure(source, by_blocks, chunks, repetitions or EPOCHS)
            rows += [_row(f"{name}, all samples", apart), _row(f"{name}, blocks", together)]
            told = f"{name}: reads of a chunk in an epoch, by {PREPROCESSORS} preprocessors together"
            result["bars"].append(bar(told, together.reads, "<= 1", together.reads <= 1))
            again = measure(source, by_blocks, 2 * chunks, held_out=True).reads
            told = f"{name}: the same, with held-out samples in as many chunks"
            result["bars"].append(bar(told, again, "<= 1", again <= 1))
            told = f"{name}: times fewer CPU seconds than with all samples shuffled"
            times = apart.seconds / together.seconds
            result["bars"].append(bar(told, times, "> 1", times > 1))
        reaching = SourceSpec(source.source, {**source.arguments, "targets": "x", "lead": 1})
        joined = OrderSpec("blocks", PREPROCESSORS, 4 * CHUNK)
        rows.append(_row("Zarr, windows that reach into the next chunk, blocks", measure(reaching, by_blocks, CHUNKS)))
        rows.append(_row("Zarr, the same, blocks of four chunks", measure(reaching, joined, CHUNKS, cache=2 * CACHE)))
    title = f"{SAMPLES} samples in {CHUNKS} chunks, {PREPROCESSORS} preprocessors, windows of {WINDOW} blocks"
    result["tables"].append({"title": title, "columns": COLUMNS, "rows": rows})
    return result


def measure(
    source: SourceSpec,
    order: OrderSpec | None,
    chunks: int,
    epochs: int = EPOCHS,
    cache: float = CACHE,
    held_out: bool = False,
) -> Measured:
    """Make epochs of a stream.

    Args:
        order: None: each sample is shuffled with all others, and preprocessors take slots in turn.
        chunks: that there are, of all variables and for all kinds of samples.
        cache: MiB that each preprocessor keeps.
        held_out: whether the same samples are evaluated after each epoch.
    """
    given = SourceSpec(source.source, {**source.arguments, "cache": cache})
    evaluated = given if held_out else None
    makers = [Dataset(DatasetSpec("chunks", given, held_out=evaluated, order=order)) for _ in range(PREPROCESSORS)]
    kinds = (TRAIN, HELD_OUT) if held_out else (TRAIN,)
    counted: list[Any] = [maker.preparation(kind).source for maker in makers for kind in kinds]
    before, begin = sum(one.chunks_read for one in counted), time.process_time()
    schedule = LaneSchedule(makers[0].length, held_out=makers[0].held_out, last_epoch=epochs - 1)
    spec = LaneSpec(
        0, 1, StreamKey("chunks", 7, 0), schedule, makers[0].layout, {0: (0,)}, blocks=makers[0].orders.blocks
    )
    portions = [LanePortions(spec, SLOT, PREPROCESSORS, maker.orders) for maker in makers]
    for number in range(-(-epochs * schedule.epoch_samples // SLOT)):
        _make_slot(makers, portions, spec, number)
    seconds, reads = time.process_time() - begin, sum(one.chunks_read for one in counted) - before
    return Measured(reads / chunks / epochs, seconds / schedule.epoch_samples / epochs)


def _make_slot(makers: list[Dataset], portions: list[LanePortions], spec: LaneSpec, number: int) -> None:
    """Let each preprocessor make its samples of a slot, or one of them all."""
    schedule, start, seed = spec.schedule, number * SLOT, spec.stream.seed
    assert schedule.end is not None
    stop = min(start + SLOT, schedule.end)
    inputs, targets = spec.layout.empty(stop - start)
    if spec.blocks is None:
        for _ in makers[number % PREPROCESSORS].fill(schedule, seed, start, inputs, targets):
            pass
        return
    for index, maker in enumerate(makers):
        rows, keys = portions[index].portion(index, number)
        for _ in maker.fill_rows(schedule.spans(start, stop), seed, rows, keys, inputs, targets, None, 0):
            pass


def _written(folder: Path) -> list[tuple[str, SourceSpec, int]]:
    """(name, source, chunks of all variables) of each format."""
    rng = np.random.default_rng(0)
    fields = np.cumsum(rng.normal(size=(SAMPLES, SIDE, SIDE)), axis=0).astype(np.float32)
    numbers = np.arange(SAMPLES)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(fields.reshape(-1)), SIDE**2)
    table = pa.table({"x": flat, "y": numbers})
    pq.write_table(table, folder / "fields.parquet", row_group_size=CHUNK, compression="zstd")
    group = zarr.open_group(str(folder / "fields.zarr"), mode="w")
    group.create_array("x", shape=fields.shape, chunks=(CHUNK, SIDE, SIDE), dtype="f4")[:] = fields
    group.create_array("y", shape=numbers.shape, chunks=(CHUNK,), dtype="i8")[:] = numbers
    columns = {"inputs": "x", "targets": "y"}
    return [
        ("Parquet", SourceSpec("parquet", {"path": str(folder / "fields.parquet"), **columns}), CHUNKS),
        ("Zarr", SourceSpec("zarr", {"path": str(folder / "fields.zarr"), **columns, "lead": 0}), 2 * CHUNKS),
    ]


def _row(name: str, measured: Measured) -> list[Any]:
    return [name, measured.reads, 1e6 * measured.seconds]
