"""Costs of a data set's samples, measured on a few of them: whether prepared ones are worth keeping, and how fast a
process makes them; and the stores of a preprocessor that follow from it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from statistics import fmean, median

import numpy as np

from preprocess.making.dataset import Dataset
from preprocess.ring.lane_memory import RingShape
from preprocess.samples.layout import Array, places_in
from preprocess.samples.order import TRAIN, BlockOrder, SampleGenerator
from preprocess.samples.stream import LaneSchedule
from preprocess.store.sample_store import Keeping, Prepared, SampleStore, StoreBudget, rounded

_SAMPLES = 8
_LOOKUP_SECONDS = 5e-6  # of what fetching a kept sample takes beside the copy
_TIMES = 3.0  # as long as fetching one, at least, preparing one takes if it is worth keeping


@dataclass(frozen=True)
class SampleCosts:
    """Costs of a training sample, the median of a few.

    Attributes:
        prepare: seconds of reading it, and of the transforms that draw nothing: what a kept one saves.
        fetch: seconds of copying a kept one.
        finish: seconds of the other transforms; None: not measured, since one is the user's.
        nbytes: how many a kept one has on the average.
    """

    prepare: float
    fetch: float
    finish: float | None
    nbytes: float

    def seconds(self, kept: bool) -> float | None:
        """Seconds of a sample that is kept, or of one that is not; None: not known."""
        return None if self.finish is None else (self.fetch if kept else self.prepare) + self.finish

    @property
    def is_worth_keeping(self) -> bool:
        """Whether preparing it takes much longer than fetching it."""
        return self.prepare > _TIMES * self.fetch


def sample_costs(dataset: Dataset) -> SampleCosts | None:
    """Read, prepare and finish a few training samples; None where none may be kept, or none can be read.

    That is for the run to tell. Users' transforms are not called.
    """
    preparation = dataset.preparation(TRAIN)
    looks = list(_looks(dataset))[1:] if preparation.is_kept else []  # the first one opens files
    if not looks:
        return None
    prepare, fetch, finish = (median(getattr(look, what) for look in looks) for what in ("prepare", "fetch", "finish"))
    known = None if preparation.pipeline.has_user_code else finish
    return SampleCosts(prepare, fetch + _LOOKUP_SECONDS, known, fmean(look.nbytes for look in looks))


def is_worth_keeping(dataset: Dataset) -> bool:
    """Read and prepare a few training samples, and see whether that takes much longer than fetching kept ones.

    False also where the user has said so, and where none of them can be read: that is for the run to tell.
    """
    costs = sample_costs(dataset)
    return costs is not None and costs.is_worth_keeping


def bytes_of_prepared(dataset: Dataset) -> int:
    """Bytes that a kept sample takes, on the average of a few; 0 if none can be read."""
    sizes = [look.nbytes for look in _looks(dataset)]
    return round(fmean(sizes)) if sizes else 0


@dataclass(frozen=True)
class _Look:
    """Seconds that preparing, fetching and finishing a sample took, and the bytes that it takes where it is kept."""

    prepare: float
    fetch: float
    finish: float
    nbytes: int


def _looks(dataset: Dataset) -> Iterator[_Look]:
    """Look at a few samples, but for those that cannot be made: the run says so when they are due."""
    prepare, preparation = preparing(dataset), dataset.preparation(TRAIN)
    inputs, targets = dataset.layout.empty(1)
    rng = np.random.default_rng(0)
    for sample in [0, *_spread(dataset)]:
        times = [time.perf_counter()]
        try:
            prepared = prepare(sample)
            times.append(time.perf_counter())
            kept = Prepared(prepared.image.copy(), prepared.target)
            times.append(time.perf_counter())
            if not preparation.pipeline.has_user_code:
                preparation.finish(kept, rng, places_in(inputs)(0), targets)
        except Exception:
            continue
        times.append(time.perf_counter())
        prepared_in, fetched_in, finished_in = (end - begin for begin, end in zip(times, times[1:]))
        size = rounded(kept.image.nbytes + kept.target.nbytes)
        yield _Look(prepared_in, fetched_in, finished_in, size)


def preparing(dataset: Dataset) -> Callable[[int], Prepared]:
    """Return what reads and prepares a training sample; its target is none of the sample's."""
    preparation = dataset.preparation(TRAIN)
    target = np.zeros((1, *dataset.layout.target_shape), dataset.layout.target_dtype)
    return lambda sample: preparation.prepare(preparation.source.read(sample)[0], target)


def _spread(dataset: Dataset) -> list[int]:
    """Samples from all over the data, or from all over the first block where all of one are read at once."""
    blocks, length = dataset.orders.blocks, dataset.length
    if blocks is not None and blocks.blocks > 1:
        length = blocks.starts[1]
    count = min(_SAMPLES, length)
    return [place * length // count for place in range(count)]


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
    schedule = LaneSchedule(dataset.length)
    for _ in dataset.fill(schedule, seed, 0, inputs[:1], targets[:1]):  # what only the first sample costs
        pass
    start = time.monotonic()
    for made in _making(dataset, schedule, seed, inputs, targets):
        elapsed = time.monotonic() - start
        if elapsed >= seconds:
            return max(elapsed, 1e-9) / made
    raise AssertionError("samples are made for ever")


def _making(dataset: Dataset, schedule: LaneSchedule, seed: int, inputs: Array, targets: Array) -> Iterator[int]:
    """Make samples, and tell how many are made so far: after each, or after each block where one is read at once.

    Of an order by blocks one stratum is made, so that blocks come one after the other, as seldom as in an epoch.
    """
    blocks, made = dataset.orders.blocks, 0
    while blocks is None:
        for done in dataset.fill(schedule, seed, made, inputs, targets):
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


#: Samples of which memory is taken beyond what all take, as sizes are estimated.
_MARGIN = 1.05


def open_stores(
    datasets: Mapping[str, Dataset], budget: StoreBudget, shape: RingShape, number: int, tell: Callable[[str], None]
) -> dict[str, SampleStore]:
    """Return the stores of a preprocessor.

    Args:
        datasets: by name; their prepared samples are kept.
        budget: what the preprocessor may take for all of them; each gets as much as its samples need, or else its part
            by need.
        shape: the shape of the node's ring.
        number: the preprocessor's number.
        tell: called with a sentence where something can't be used.
    """
    needs = {name: _need(dataset, shape, number) for name, dataset in datasets.items()}
    return {
        name: _store(datasets[name], _part(budget, need, sum(needs.values())), shape, number, tell)
        for name, need in needs.items()
        if need
    }


def is_divided(length: int, held_out: int, writers: int, blocks: BlockOrder | None = None) -> bool:
    """Say whether there are so many samples that each preprocessor has its own in every epoch, and in every window."""
    return length + held_out >= 64 * writers and (blocks is None or blocks.strata >= writers)


def has_own_blocks(dataset: Dataset, writers: int) -> bool:
    """Say whether the order goes by blocks, and each preprocessor reads blocks of its own."""
    blocks = dataset.orders.blocks
    return blocks is not None and writers > 1 and is_divided(dataset.length, dataset.held_out, writers, blocks)


def _need(dataset: Dataset, shape: RingShape, number: int) -> int:
    """Bytes that all samples of a preprocessor take, and those of a slot twice, which lie there meanwhile."""
    own = -(-(dataset.length + dataset.held_out - number) // shape.writers)
    size = bytes_of_prepared(dataset)
    return round(_MARGIN * size * own) + 2 * size * _largest(dataset, shape)


def _part(budget: StoreBudget, need: int, needs: int) -> StoreBudget:
    """The part of one data set: memory first, the disk for what is left."""
    memory = min(need, budget.memory * need // needs)
    disk = min(need - memory, budget.disk * need // needs)
    return StoreBudget(memory, disk, budget.folder)


def _store(
    dataset: Dataset, budget: StoreBudget, shape: RingShape, number: int, tell: Callable[[str], None]
) -> SampleStore:
    layout = dataset.prepared_layout
    assert layout is not None, "only data sets that can be kept are"
    samples = dataset.length + dataset.held_out
    keeping = Keeping(shape.writers, number, shape.lanes, _largest(dataset, shape))
    return SampleStore(budget, layout, dataset.orders, samples, keeping, tell)


def _largest(dataset: Dataset, shape: RingShape) -> int:
    """Samples of a slot that one preprocessor makes, where it is an unlucky one; all, where the last blocks are its."""
    if dataset.orders.blocks is not None:
        return shape.slot_samples
    return min(shape.slot_samples, 2 * shape.slot_samples // shape.writers + 8)
