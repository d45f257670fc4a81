"""Random and centre crops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from preprocess.errors import TransformError
from preprocess.layout import Array
from preprocess.transforms.images import check_number, image_shape, pair

__all__ = ["CenterCrop", "RandomCrop"]


@dataclass(frozen=True)
class RandomCrop:
    """Pad all sides, then cut out a part of the given size, every place equally likely.

    Args:
        size: side of the part, or [height, width].
        padding: pixels added to each side, or [vertical, horizontal].
        fill: value of the added pixels.
    """

    size: Any
    padding: Any = 0
    fill: float = 0

    def __post_init__(self) -> None:
        pair(self.size, "size", 1)
        pair(self.padding, "padding", 0)
        check_number(self.fill, "fill", -(2**31), 2**31)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        height, width, channels = image_shape(shape, "random_crop")
        pad_y, pad_x = pair(self.padding, "padding", 0)
        return (*_check_fits(self.size, height + 2 * pad_y, width + 2 * pad_x), channels)

    def __call__(self, image: Array, rng: np.random.Generator) -> Array:
        height, width = pair(self.size, "size", 1)
        pad_y, pad_x = pair(self.padding, "padding", 0)
        rows, columns, _ = image.shape
        top = int(rng.integers(rows + 2 * pad_y - height + 1)) - pad_y
        left = int(rng.integers(columns + 2 * pad_x - width + 1)) - pad_x
        return self._cut(image, top, left, height, width)

    def _cut(self, image: Array, top: int, left: int, height: int, width: int) -> Array:
        """Cut at a place that may reach over the edges, without making the padded image."""
        rows, columns, channels = image.shape
        if top >= 0 and left >= 0 and top + height <= rows and left + width <= columns:
            return image[top : top + height, left : left + width]
        part = np.full((height, width, channels), self.fill, image.dtype)
        y0, y1, x0, x1 = max(top, 0), min(top + height, rows), max(left, 0), min(left + width, columns)
        if y0 < y1 and x0 < x1:
            part[y0 - top : y1 - top, x0 - left : x1 - left] = image[y0:y1, x0:x1]
        return part


@dataclass(frozen=True)
class CenterCrop:
    """Cut out the middle.

    Args:
        size: side of the part, or [height, width].
    """

    size: Any

    def __post_init__(self) -> None:
        pair(self.size, "size", 1)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        height, width, channels = image_shape(shape, "center_crop")
        return (*_check_fits(self.size, height, width), channels)

    def __call__(self, image: Array, rng: np.random.Generator) -> Array:
        height, width = pair(self.size, "size", 1)
        top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
        return image[top : top + height, left : left + width]


def _check_fits(size: Any, height: int, width: int) -> tuple[int, int]:
    wanted = pair(size, "size", 1)
    if wanted[0] > height or wanted[1] > width:
        rule = f"a crop is no larger than the image, which is {height} x {width} with its padding"
        raise TransformError(size, rule, "make size smaller or padding larger")
    return wanted
