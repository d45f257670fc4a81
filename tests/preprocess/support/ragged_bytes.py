"""A map-style data set of ragged samples: bytes of very different numbers."""

from __future__ import annotations

import numpy as np

from preprocess.samples.layout import RaggedSize

_MOST = 3000


class Bytes:
    """Sample i has a number of bytes that depends on i: none, a few, or as many as any; its target is that number.

    giant: a sample that has one more than any.
    """

    def __init__(self, count: int, giant: int | None = None) -> None:
        self._lengths = np.random.default_rng(count).choice([0, 1, 20, 300, _MOST], count).tolist()
        if giant is not None:
            self._lengths[giant] = _MOST + 1
        self.ragged = RaggedSize(_MOST, 300)

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        length = self._lengths[index]
        return np.random.default_rng(index).integers(0, 256, length, np.uint8), length
