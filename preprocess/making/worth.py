"""Whether prepared samples of a data set are worth keeping, and what they take: measured on a few of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from preprocess.making.dataset import Dataset
from preprocess.samples.order import TRAIN
from preprocess.store.blocks import rounded
from preprocess.store.tier import Prepared

_SAMPLES = 8
_LOOKUP_SECONDS = 5e-6  # of what fetching a kept sample takes beside the copy
_TIMES = 3.0  # as long as fetching one, at least, preparing one takes if it is worth keeping


def is_worth_keeping(dataset: Dataset) -> bool:
    """Read and prepare a few training samples, and see whether that takes much longer than fetching kept ones.

    False also where the user has said so, and where none of them can be read: that is for the run to tell.
    """
    if not dataset.preparation(TRAIN).is_kept:
        return False
    looks = list(_looks(dataset))[1:]  # the first one opens files
    if not looks:
        return False
    prepare, fetch = (median(getattr(look, what) for look in looks) for what in ("prepare", "fetch"))
    return prepare > _TIMES * (fetch + _LOOKUP_SECONDS)


def bytes_of_prepared(dataset: Dataset) -> int:
    """Bytes that a kept sample takes, on the average of a few; 0 if none can be read."""
    sizes = [look.size for look in _looks(dataset)]
    return round(fmean(sizes)) if sizes else 0


@dataclass(frozen=True)
class _Look:
    """Seconds that preparing and fetching a sample took, and the bytes that it takes."""

    prepare: float
    fetch: float
    size: int


def _looks(dataset: Dataset) -> Iterator[_Look]:
    """Look at a few samples, but for those that cannot be read: the run says so when they are due."""
    prepare = preparing(dataset)
    for sample in [0, *_spread(dataset.length)]:
        start = time.perf_counter()
        try:
            prepared = prepare(sample)
        except Exception:
            continue
        middle = time.perf_counter()
        prepared.image.copy()
        end = time.perf_counter()
        yield _Look(middle - start, end - middle, rounded(prepared.image.nbytes + prepared.target.nbytes))


def preparing(dataset: Dataset) -> Callable[[int], Prepared]:
    """Return what reads and prepares a training sample; its target is none of the sample's."""
    preparation = dataset.preparation(TRAIN)
    target = np.zeros((1, *dataset.layout.target_shape), dataset.layout.target_dtype)
    return lambda sample: preparation.prepare(preparation.source.read(sample)[0], target)


def _spread(length: int) -> list[int]:
    count = min(_SAMPLES, length)
    return [place * length // count for place in range(count)]
