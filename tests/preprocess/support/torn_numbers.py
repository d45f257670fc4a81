"""A map-style data set of numbered samples, some of which cannot be read."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np


class TornNumbers:
    """Sample k is k everywhere, and its target is k three times.

    torn: numbers of samples that cannot be read.
    """

    def __init__(self, count: int, torn: Collection[int] = ()) -> None:
        self._count, self._torn = count, frozenset(torn)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        if index in self._torn:
            raise OSError(f"sample {index} is torn")
        return np.full((4, 3), index, np.float32), np.full(3, index, np.uint8)
