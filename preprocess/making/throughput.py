"""How fast one process makes samples, for those who choose the number of preprocessors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle

import numpy as np

from preprocess.making.dataset import Dataset
from preprocess.making.worth import preparing
from preprocess.samples.itinerary import Itinerary
from preprocess.samples.layout import Array
from preprocess.samples.order import TRAIN, SampleGenerator
from preprocess.samples.ragged import places_in


@dataclass(frozen=True)
class MadeRates:
    """Training samples a second that a process makes: while nothing is kept, and once what there is room for is."""

    first: float
    later: float


def throughput(dataset: Dataset, seconds: float, seed: int = 0, samples: int = 64, kept: float = 0.0) -> float:
    """Measure how many training samples a second this process makes, into memory of its own.

    Args:
        dataset: the data set.
        seconds: how long to measure; at least one sample is made, or one block where the order goes by blocks.
        seed: seed of the order and the transforms.
        samples: as many samples lie in the memory that is written.
        kept: the part of all samples that are kept as they are before the first transform that draws, once they have
            been read; the figure is for later epochs.
    """
    return made_rates(dataset, seconds, seed, samples, kept).later


def made_rates(dataset: Dataset, seconds: float, seed: int = 0, samples: int = 64, kept: float = 0.0) -> MadeRates:
    """Measure as `throughput` does, and tell also how many samples a second it makes while nothing is kept."""
    if kept <= 0:
        rate = 1 / _seconds_of_whole(dataset, seconds, seed, samples)
        return MadeRates(rate, rate)
    whole = _seconds_of_whole(dataset, seconds / 2, seed, samples)
    finish = min(_seconds_of_finish(dataset, seconds / 2, seed), whole)
    return MadeRates(1 / whole, 1 / (finish + (1 - min(kept, 1.0)) * (whole - finish)))


def _seconds_of_whole(dataset: Dataset, seconds: float, seed: int, samples: int) -> float:
    """Seconds that a sample takes from its reading on."""
    inputs, targets = dataset.layout.empty(samples)
    itinerary = Itinerary(dataset.length)
    for _ in dataset.fill(itinerary, seed, 0, inputs[:1], targets[:1]):  # what only the first sample costs
        pass
    start = time.monotonic()
    for made in _making(dataset, itinerary, seed, inputs, targets):
        elapsed = time.monotonic() - start
        if elapsed >= seconds:
            return max(elapsed, 1e-9) / made
    raise AssertionError("samples are made for ever")


def _making(dataset: Dataset, itinerary: Itinerary, seed: int, inputs: Array, targets: Array) -> Iterator[int]:
    """Make samples, and tell how many are made so far: after each, or after each block where one is read at once.

    Of an order by blocks one stratum is made, so that blocks come one after the other, as seldom as in an epoch.
    """
    blocks, made = dataset.orders.blocks, 0
    while blocks is None:
        for done in dataset.fill(itinerary, seed, made, inputs, targets):
            yield made + done
        made += len(inputs)
    order = dataset.orders.of(seed, 0)
    mine = order[blocks.strata_of(order) == blocks.strata - 1]
    ends = np.diff(blocks.blocks_of(mine), append=-1) != 0
    for sample, is_end in cycle(zip(mine.tolist(), ends.tolist())):
        row = made % len(inputs)
        dataset.make(TRAIN, seed, 0, sample, inputs[row], targets[row : row + 1])
        made += 1
        if is_end:
            yield made


def _seconds_of_finish(dataset: Dataset, seconds: float, seed: int) -> float:
    """Seconds that a sample takes which is kept."""
    preparation, prepared = dataset.preparation(TRAIN), preparing(dataset)(0)
    inputs, targets = dataset.layout.empty(1)
    place = places_in(inputs)(0)
    generator, made, start = SampleGenerator(), 0, time.monotonic()
    while True:
        preparation.finish(prepared, generator(seed, 0, made), place, targets)
        made += 1
        elapsed = time.monotonic() - start
        if elapsed >= seconds:
            return max(elapsed, 1e-9) / made
