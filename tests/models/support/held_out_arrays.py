"""The held-out pictures of the runs here, as arrays."""

from __future__ import annotations

import numpy as np

from tests.live.support import parts


def held_out_arrays() -> tuple[np.ndarray, np.ndarray]:
    """Inputs, (n, height, width, 1) uint8, and targets, (n,) int64."""
    pictures = parts.Pictures(train=False)
    pairs = [pictures[index] for index in range(len(pictures))]
    return np.stack([picture for picture, _ in pairs]), np.array([target for _, target in pairs], np.int64)
