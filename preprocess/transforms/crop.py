"""Random and centre crops."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from preprocess.samples.layout import Array
from preprocess.transforms.images import check_fits, check_number, destination, image_shape, pair


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

    keeps_shape: ClassVar[bool] = False

    def __post_init__(self) -> None:
        pair(self.size, "size", 1)
        pair(self.padding, "padding", 0)
        check_number(self.fill, "fill", -(2**31), 2**31)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        height, width, channels = image_shape(shape, "random_crop")
        self._check_fits(height, width)
        return (*self._size, channels)

    def __call__(self, image: Array, rng: np.random.Generator, out: Array | None = None) -> Array:
        (height, width), (pad_y, pad_x) = self._size, self._padding
        rows, columns, _ = image.shape
        self._check_fits(rows, columns)
        top = int(rng.integers(rows + 2 * pad_y - height + 1)) - pad_y
        left = int(rng.integers(columns + 2 * pad_x - width + 1)) - pad_x
        return self._cut(image, top, left, out)

    @cached_property
    def _size(self) -> tuple[int, int]:
        return pair(self.size, "size", 1)

    @cached_property
    def _padding(self) -> tuple[int, int]:
        return pair(self.padding, "padding", 0)

    def _check_fits(self, height: int, width: int) -> None:
        pad_y, pad_x = self._padding
        check_fits(self._size, height + 2 * pad_y if height >= 0 else -1, width + 2 * pad_x if width >= 0 else -1)

    def _cut(self, image: Array, top: int, left: int, out: Array | None) -> Array:
        """Cut at a place that may reach over the edges, without making the padded image."""
        height, width = self._size
        rows, columns, channels = image.shape
        if top >= 0 and left >= 0 and top + height <= rows and left + width <= columns:
            return image[top : top + height, left : left + width]
        part = destination(out, (height, width, channels), image.dtype)
        part.fill(self.fill)
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

    keeps_shape: ClassVar[bool] = False

    def __post_init__(self) -> None:
        pair(self.size, "size", 1)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        height, width, channels = image_shape(shape, "center_crop")
        check_fits(self._size, height, width)
        return (*self._size, channels)

    def __call__(self, image: Array, rng: np.random.Generator, out: Array | None = None) -> Array:
        height, width = self._size
        check_fits(self._size, *image.shape[:2])
        top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
        return image[top : top + height, left : left + width]

    @cached_property
    def _size(self) -> tuple[int, int]:
        return pair(self.size, "size", 1)
