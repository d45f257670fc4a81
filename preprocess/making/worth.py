"""What samples of a data set take, and whether prepared ones are worth keeping: measured on a few of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from preprocess.making.dataset import Dataset
from preprocess.samples.order import TRAIN
from preprocess.samples.ragged import places_in
from preprocess.store.blocks import rounded
from preprocess.store.tier import Prepared

_SAMPLES = 8
_LOOKUP_SECONDS = 5e-6  # of what fetching a kept sample takes beside the copy
_TIMES = 3.0  # as long as fetching one, at least, preparing one takes if it is worth keeping


@dataclass(frozen=True)
class SampleCosts:
    """What a training sample takes, the median of a few.

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
