"""An augmentation in plain Python, which a person writes who has no library for it: it needs a core."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from preprocess.samples.layout import Array


@dataclass(frozen=True)
class Warp:
    """Shear and shift a grey picture at random, pixel by pixel between its neighbours.

    Args:
        times: how often it is warped; each time takes as long as the first.
    """

    times: int = 1

    def __call__(self, image: Array, rng: np.random.Generator) -> Array:
        rows = image.reshape(image.shape[0], image.shape[1]).tolist()
        for shear, down, right in rng.uniform(-0.1, 0.1, (self.times, 3)).tolist():
            rows = _warped(rows, shear, 20 * down, 20 * right)
        return np.array(rows).round().astype(np.uint8).reshape(image.shape)


def _warped(rows: list[list[float]], shear: float, down: float, right: float) -> list[list[float]]:
    height, width = len(rows), len(rows[0])
    warped = []
    for y in range(height):
        row = []
        for x in range(width):
            source_y, source_x = y + down + shear * x, x + right + shear * y
            top, left = int(source_y // 1), int(source_x // 1)
            if 0 <= top < height - 1 and 0 <= left < width - 1:
                low, far = source_y - top, source_x - left
                above, below = rows[top], rows[top + 1]
                one = above[left] * (1 - far) + above[left + 1] * far
                other = below[left] * (1 - far) + below[left + 1] * far
                row.append(one * (1 - low) + other * low)
            else:
                row.append(0.0)
        warped.append(row)
    return warped
