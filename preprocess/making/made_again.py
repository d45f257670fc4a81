"""Whether a sample comes out the same each time that it is made, as it has to where several processes make samples."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from preprocess.making.dataset import Dataset
from preprocess.samples.errors import CorruptLimitError, SampleError
from preprocess.samples.order import HELD_OUT, TRAIN
from preprocess.samples.ragged import places_in

_PATIENCE = 0.25
"""Seconds; a sample that takes longer is not made again."""


def unlike_samples(dataset: Dataset, seed: int) -> Iterator[str]:
    """Say of which kinds the first sample is another one when it is made again after the last, in one sentence each.

    What a person's own source or transform draws from global generators is the same each time, as these are seeded for
    each sample. What it draws from a generator of its own, or counts, depends on what was made before.
    """
    for kind, length in ((TRAIN, dataset.length), (HELD_OUT, dataset.held_out)):
        if length and dataset.preparation(kind).has_user_code and _differs(dataset, kind, seed, length):
            yield of_its_own(f"data {dataset.name}", kind)


def of_its_own(what: str, kind: str) -> str:
    """Say that a data set's samples draw from a generator of its own; what: its name, kind: of its samples."""
    return (
        f"{what}: {'training' if kind == TRAIN else 'held-out'} sample 0 is another one when it is made again: its "
        "source or transforms draw from a generator of their own, or count. A run then does not repeat, and networks "
        "may read different samples. Draw from the global generators of torch, NumPy or Python, which are seeded for "
        "each sample"
    )


def _differs(dataset: Dataset, kind: str, seed: int, length: int) -> bool:
    begin = time.monotonic()
    try:
        first = _made(dataset, kind, seed, 0)
        if time.monotonic() - begin > _PATIENCE:
            return False
        _made(dataset, kind, seed, length - 1)
        return _made(dataset, kind, seed, 0) != first
    except (SampleError, CorruptLimitError):  # told when it is made in earnest
        return False


def _made(dataset: Dataset, kind: str, seed: int, sample: int) -> tuple[bytes, bytes]:
    inputs, targets = dataset.layout.empty(1)
    dataset.make(kind, seed, 0, sample, places_in(inputs)(0), targets)
    return np.asarray(inputs[0]).tobytes(), targets.tobytes()
