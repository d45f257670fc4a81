"""Resize, by OpenCV."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from preprocess.samples.errors import TransformError
from preprocess.samples.layout import Array
from preprocess.transforms.images import destination, image_shape, interpolation_flag, pair


@dataclass(frozen=True)
class Resize:
    """Scale the image, to a fixed size or with its proportions kept.

    Args:
        size: new side, or [height, width], whatever the image's proportions.
        interpolation: linear, linear_exact (the same bits on every processor), area (antialiased when shrinking),
            cubic or nearest.
        shortest: given in place of size, the new length of the shorter side; the longer one's is rounded down.
    """

    size: Any = None
    interpolation: str = "linear"
    shortest: Any = None

    keeps_shape: ClassVar[bool] = False

    def __post_init__(self) -> None:
        interpolation_flag(self.interpolation, "resize")
        if (self.size is None) == (self.shortest is None):
            given = {"size": self.size, "shortest": self.shortest}
            raise TransformError(given, "resize takes size or shortest, one of them", "write resize: {size: 224}")
        if self.size is not None:
            pair(self.size, "size", 1)
        elif not isinstance(self.shortest, int) or isinstance(self.shortest, bool) or self.shortest < 1:
            raise TransformError(self.shortest, "shortest is a whole number of at least 1", "write shortest: 256")

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        height, width, channels = image_shape(shape, "resize")
        return (*self._new_size(height, width), channels)

    def __call__(self, image: Array, rng: np.random.Generator, out: Array | None = None) -> Array:
        import cv2

        height, width = self._new_size(*image.shape[:2])
        resized = destination(out, (height, width, image.shape[2]), image.dtype)
        cv2.resize(image, (width, height), dst=resized, interpolation=self._flag)
        return resized

    def _new_size(self, height: int, width: int) -> tuple[int, int]:
        if self._size is not None:
            return self._size
        if height < 0 or width < 0:
            return -1, -1
        if height <= width:
            return self.shortest, self.shortest * width // height
        return self.shortest * height // width, self.shortest

    @cached_property
    def _size(self) -> tuple[int, int] | None:
        return None if self.size is None else pair(self.size, "size", 1)

    @cached_property
    def _flag(self) -> int:
        return interpolation_flag(self.interpolation, "resize")
