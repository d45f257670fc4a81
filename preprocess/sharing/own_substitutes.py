"""What a loader with a part takes in place of samples that cannot be made: the stream's may be outside of the part."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from preprocess.making.dataset import Dataset
from preprocess.samples.corrupt import SkippedSample
from preprocess.samples.layout import ITSELF, Array
from preprocess.samples.order import kept_global_generators
from preprocess.samples.part import Indices
from preprocess.samples.ragged import InputPlace, places_in
from preprocess.samples.stream import DatasetSpec
from preprocess.sharing.own_samples import OwnSamples


class OwnSubstitutes:
    """Makes them in the loader's own process. The data set is opened there when the first is wanted.

    Args:
        data: the data set; the service counts what is skipped.
        kind, seed: the loader's.
        own: its samples.
        on_skip: called with each sample that is found corrupt here.
    """

    def __init__(
        self, data: DatasetSpec, kind: str, seed: int, own: OwnSamples, on_skip: Callable[[SkippedSample], None]
    ) -> None:
        self._data, self._kind, self._seed, self._own, self._on_skip = data, kind, seed, own, on_skip
        self._opened: Dataset | None = None

    def put(self, epoch: int, places: Indices, taken: Array, inputs: Array, targets: Array) -> None:
        """Put the loader's own where the stream has others.

        Args:
            places: of the samples in the epoch, (count,).
            taken: what lies there: `ITSELF`, or the index of the sample that was taken in its place, (count,).
            inputs, targets: what lies there, (count, ...).
        """
        rows = np.flatnonzero(taken != ITSELF)
        if rows.size and self._own.mask is not None:
            rows = rows[~self._own.mask[taken[rows]]]
            samples, place = self._own.samples_at(epoch, places[rows]), places_in(inputs)
            for row, sample in zip(rows.tolist(), samples.tolist()):
                self._make(epoch, sample, place(row), targets[row : row + 1])

    def _make(self, epoch: int, sample: int, input_place: InputPlace, target: Array) -> None:
        assert self._own.mask is not None
        with kept_global_generators(), _one_thread():
            if self._opened is None:
                self._opened = Dataset(replace(self._data, corrupt_limit=sys.maxsize), self._on_skip)
            self._opened.make_substitute(self._kind, self._seed, epoch, sample, input_place, target, self._own.mask)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch compute in this thread alone, as it does in the service."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
