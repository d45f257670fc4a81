"""Three clouds of points to tell apart, for runs whose data is beside the point."""

from __future__ import annotations

import os
import time
from typing import SupportsFloat

import numpy as np

WIDTH = 16


class Clouds:
    """`count` points in three clouds, drawn by seed path (count), from a slow disk if SAMPLE_SECONDS says so.

    Samples are float32 of shape (16,); labels are 0, 1 or 2.
    """

    def __init__(self, count: int) -> None:
        draw = np.random.default_rng(count)
        self.labels = draw.integers(0, 3, count)
        self.points = (draw.standard_normal((count, WIDTH)) + self.labels[:, None]).astype(np.float32)
        self._seconds = float(os.environ.get("SAMPLE_SECONDS", "0"))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[np.ndarray, SupportsFloat]:  # type: ignore[type-arg]
        if self._seconds:
            time.sleep(self._seconds)
        return self.points[index], self.labels[index]
