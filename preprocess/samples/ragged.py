"""Samples of bytes, each of which has as many as it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from preprocess.samples.layout import Array


@dataclass(frozen=True)
class RaggedSize:
    """What a map-style data set of ragged samples says of itself, as its attribute `ragged`.

    Its inputs are arrays of bytes, (any,) uint8.

    Attributes:
        most: bytes of the largest sample; a larger one is refused.
        mean: bytes of a sample in the mean, as far as is known, at least 1.
    """

    most: int
    mean: int


class SamplePlace:
    """Where one ragged sample goes: a row of a slot, or of an array of objects."""

    def __init__(self, rows: Any, row: int) -> None:
        self._rows, self._row = rows, row

    def put(self, sample: Array) -> None:
        """Write a copy of the sample there.

        Raises:
            ValueError: it is no array of bytes, (any,) uint8, or larger than the largest.
        """
        if sample.ndim != 1 or sample.dtype != np.uint8:
            raise ValueError(f"the sample is {sample.shape} of {sample.dtype}, all others are (any,) of uint8")
        self._rows[self._row] = sample.copy() if isinstance(self._rows, np.ndarray) else sample


InputPlace = Array | SamplePlace
"""Where one input is written: its part of a slot, or the place of a ragged one."""


def places_in(inputs: Any) -> Callable[[int], InputPlace]:
    """Return what gives the place of a row among inputs: of a slot, or as `SampleLayout.empty` makes them."""
    if isinstance(inputs, np.ndarray) and inputs.dtype != object:
        return inputs.__getitem__
    return lambda row: SamplePlace(inputs, row)
