"""How near one preprocessor comes to the bare work, and what the randomness of each sample costs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import cv2
import h5py
import numpy as np
import simplejpeg

from benchmarks.pictures import SIDE, pictures
from preprocess import Dataset
from preprocess.making.preprocessor import Preprocessor
from preprocess.ring.lane_memory import RingShape, lane_bytes
from preprocess.ring.ring import Ring
from preprocess.samples.order import SampleGenerator, epoch_order
from preprocess.samples.stream import LaneSchedule, LaneSpec, StreamKey
from preprocess.transforms.images import RandomResizedCrop

__all__ = ["BareLoop", "OnePreprocessor", "randomness_share"]

_SLOT = 64
_BATCH = 256  # samples that stand ready at a time, in the loop's memory as in the ring
_CALLS = 10_000


class BareLoop:
    """Read, decode, cut out, resize, flip: a loop that a person writes for one process, with nothing around it.

    It fills one batch again and again, and takes the pictures in the order in which the preprocessor does.

    Args:
        path: where the pictures lie.
        reads: read each picture's bytes from the file; otherwise they are in memory.
    """

    def __init__(self, path: Path, reads: bool) -> None:
        with h5py.File(path) as file:
            content, offsets = file["train/bytes"], file["train/offsets"][:]
            self._starts = (offsets + content.id.get_offset()).tolist()
            self._files = [content[start:stop] for start, stop in zip(offsets, offsets[1:])]
        self._descriptor = os.open(path, os.O_RDONLY) if reads else None
        self._crop = RandomResizedCrop(SIDE)
        self._out = np.empty((_BATCH, SIDE, SIDE, 3), np.uint8)
        self._rng = np.random.default_rng(0)
        self._order = epoch_order(len(self._files), 0, 0).tolist()
        self._next = 0

    def make(self, images: int) -> float:
        """Make so many images and return the processor seconds."""
        rng = self._rng
        begin = time.process_time()
        for number in range(images):
            content = self._content(self._order[(self._next + number) % len(self._files)])
            image = simplejpeg.decode_jpeg(content, strict=True)
            rows, columns, _ = image.shape
            top, left, height, width = self._crop.draw(rows, columns, rng)
            out = self._out[(self._next + number) % _BATCH]
            cv2.resize(image[top : top + height, left : left + width], (SIDE, SIDE), dst=out)
            if rng.random() < 0.5:
                cv2.flip(out, 1, dst=out)
        self._next += images
        return time.process_time() - begin

    def _content(self, picture: int) -> object:
        if self._descriptor is None:
            return self._files[picture]
        start = self._starts[picture]
        return os.pread(self._descriptor, self._starts[picture + 1] - start, start)


class OnePreprocessor:
    """One preprocessor with the ring, a lane and a reader: everything that a run has in one process."""

    def __init__(self, path: Path) -> None:
        dataset = Dataset(pictures(path))
        size = lane_bytes(dataset.layout, _BATCH, _SLOT, 1)
        self._ring = Ring.forked(RingShape(1, -(-size // 4096) * 4096, _SLOT, 1, 1))
        lane = self._ring.lanes[0]
        lane.open(dataset.layout, [0], generation=1)
        self._preprocessor = Preprocessor(self._ring, 0, {dataset.name: dataset})
        stream, schedule = StreamKey(dataset.name, 0, 0), LaneSchedule(dataset.length)
        self._preprocessor.open_lane(LaneSpec(0, 1, stream, schedule, dataset.layout, {0: (0,)}))
        self._reader = lane.reader(0, dataset.layout, generation=1)
        self._made = 0

    def make(self, images: int) -> float:
        """Make so many images, a multiple of the slot's, and return the processor seconds."""
        begin = time.process_time()
        for _ in range(images // _SLOT):
            assert self._preprocessor.step()
            self._made += _SLOT
            self._reader.wait(self._made, timeout=1.0)
            self._reader.release(self._made)
        return time.process_time() - begin


def randomness_share(path: Path, images: int = 256) -> float:
    """Return how much of a sample's time is spent on giving it a generator of its own."""
    dataset = Dataset(pictures(path))
    inputs, targets = dataset.layout.empty(_SLOT)

    def make(start: int) -> None:
        for _ in dataset.fill(LaneSchedule(dataset.length), 0, start, inputs, targets):
            pass

    make(0)
    begin = time.process_time()
    for start in range(0, images, _SLOT):
        make(start)
    whole = (time.process_time() - begin) / images
    generator = SampleGenerator()
    begin = time.process_time()
    for sample in range(_CALLS):
        generator(0, 0, sample)
    return (time.process_time() - begin) / _CALLS / whole
