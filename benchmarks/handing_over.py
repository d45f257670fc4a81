"""What it costs to hand batches that are ready to the readers of a node, decoding and reading of pixels left out."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from preprocess import SampleLayout
from preprocess.ring.lane_memory import RingShape, lane_bytes
from preprocess.ring.ring import Ring

__all__ = ["BATCH", "HandOver", "hand_over", "memcpy_seconds"]

BATCH = 256
_SLOT = 128
_LAYOUT = SampleLayout((224, 224, 3), "uint8")
_AHEAD = 2  # batches that the lane holds
_SECONDS = 60.0


@dataclass(frozen=True)
class HandOver:
    """Costs of a batch of 256 images.

    Attributes:
        wall: seconds from batch to batch.
        reader_cpu: processor seconds of one reader.
    """

    wall: float
    reader_cpu: float


def hand_over(readers: int, batches: int) -> HandOver:
    """Publish batches that nobody makes to readers that only wait for them and give them back."""
    size = lane_bytes(_LAYOUT, _AHEAD * BATCH, _SLOT, 1)
    ring = Ring.forked(RingShape(1, -(-size // 4096) * 4096, _SLOT, readers, 1))
    ring.lanes[0].open(_LAYOUT, range(readers), generation=1)
    pipes = [_fork(partial(_read, ring, number, batches)) for number in range(readers)]
    writer = ring.lanes[0].writer(0, _LAYOUT, generation=1)
    begin = time.perf_counter()
    for _ in range(batches * BATCH // _SLOT):
        with writer.slot(timeout=_SECONDS):
            pass
    wall = time.perf_counter() - begin
    cpu = [_result(pipe) for pipe in pipes]
    return HandOver(wall / batches, sum(cpu) / readers / batches)


def memcpy_seconds(repetitions: int = 5) -> float:
    """Return the processor seconds of copying such a batch into memory that is there already, the median."""
    source, target = np.ones((BATCH, 224, 224, 3), np.uint8), np.zeros((BATCH, 224, 224, 3), np.uint8)
    seconds = []
    for _ in range(repetitions):
        begin = time.process_time()
        np.copyto(target, source)
        seconds.append(time.process_time() - begin)
    return float(np.median(seconds))


def _read(ring: Ring, number: int, batches: int) -> float:
    reader = ring.lanes[0].reader(number, _LAYOUT, generation=1)
    begin = time.process_time()
    for batch in range(1, batches + 1):
        reader.wait(batch * BATCH, timeout=_SECONDS)
        reader.release(batch * BATCH)
    seconds = time.process_time() - begin
    reader.leave()
    return seconds


def _fork(work: Callable[[], float]) -> tuple[int, int]:
    """Run something in a child, and return (process id, descriptor) for `_result`."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, struct.pack("d", work()))
        finally:
            os._exit(0)
    os.close(writing)
    return pid, reading


def _result(child: tuple[int, int]) -> float:
    pid, reading = child
    answer = os.read(reading, 8)
    os.close(reading)
    os.waitpid(pid, 0)
    if len(answer) != 8:
        raise RuntimeError("a reader ended without a result; see its messages above")
    return float(struct.unpack("d", answer)[0])
