"""Many pictures of the size of `parts.Pictures`, so that several batches of them are predicted."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

SIDE, CLASSES = 12, 10


class Many:
    """Noise with classes; those of `broken` cannot be read, and that of `stuck` waits for ever for a pipe's writer."""

    def __init__(
        self, count: int = 300, broken: Collection[int] = (), stuck: int | None = None, pipe: str = ""
    ) -> None:
        rng = np.random.default_rng(9)
        self._pictures = rng.integers(0, 255, (count, SIDE, SIDE, 1), dtype=np.uint8)
        self._classes = rng.integers(0, CLASSES, count)
        self._broken, self._stuck, self._pipe = frozenset(broken), stuck, pipe

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        if index in self._broken:
            raise OSError(f"picture {index} lies at the bottom of the sea")
        if index == self._stuck:
            open(self._pipe).close()
        return self._pictures[index], int(self._classes[index])
