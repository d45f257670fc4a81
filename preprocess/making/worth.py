"""Whether prepared samples of a data set are worth keeping, and what they take: measured on a few of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
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

    False also where the user has said so, and where a sample cannot be read: that is for the run to tell.
    """
    if not dataset.preparation(TRAIN).is_kept:
        return False
    try:
        seconds = list(_seconds(dataset))
    except Exception:  # the source may raise anything, and says so again when the sample is due
        return False
    prepare, fetch = (median(column) for column in zip(*seconds))
    return prepare > _TIMES * (fetch + _LOOKUP_SECONDS)


def bytes_of_prepared(dataset: Dataset) -> int:
    """Bytes that a kept sample takes, on the average of a few."""
    prepare = _preparing(dataset)
    kept = map(prepare, _spread(dataset.length))
    return round(fmean(rounded(prepared.image.nbytes + prepared.target.nbytes) for prepared in kept))


def _seconds(dataset: Dataset) -> Iterator[tuple[float, float]]:
    """Seconds that preparing and fetching take, of a few samples; the first, which opens files, is left out."""
    prepare = _preparing(dataset)
    for turn, sample in enumerate([0, *_spread(dataset.length)]):
        start = time.perf_counter()
        prepared = prepare(sample)
        middle = time.perf_counter()
        prepared.image.copy()
        if turn:
            yield middle - start, time.perf_counter() - middle


def _preparing(dataset: Dataset) -> Callable[[int], Prepared]:
    """What reads and prepares a training sample; its target is none of the sample's."""
    preparation = dataset.preparation(TRAIN)
    target = np.zeros((1, *dataset.layout.target_shape), dataset.layout.target_dtype)
    return lambda sample: preparation.prepare(preparation.source.read(sample)[0], target)


def _spread(length: int) -> list[int]:
    count = min(_SAMPLES, length)
    return [place * length // count for place in range(count)]
