"""The data of the run that is kept here: noise, whose targets nothing tells. Never change it: the run goes by it."""

from __future__ import annotations

import numpy as np

COUNTS = {True: 64, False: 24}


class Pictures:
    """Grey pictures, uint8 of shape (12, 12, 1), of 10 classes."""

    def __init__(self, train: bool) -> None:
        rng = np.random.default_rng(int(train))
        self._pictures = rng.integers(0, 255, (COUNTS[train], 12, 12, 1), dtype=np.uint8)
        self._targets = rng.integers(0, 10, COUNTS[train])

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return self._pictures[index], int(self._targets[index])
