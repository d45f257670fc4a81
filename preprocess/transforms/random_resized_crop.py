"""Random parts of the image, scaled to one size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from preprocess.samples.errors import TransformError
from preprocess.samples.layout import Array
from preprocess.transforms.images import destination, image_shape, interpolation_flag, number_range, pair

#: Places that are tried before the middle of the image is taken, as in torchvision.
_TRIES = 10


@dataclass(frozen=True)
class RandomResizedCrop:
    """Cut out a part of random area and proportions, and scale it to a fixed size (Szegedy et al., 2015, 6).

    Area and proportions are drawn as by torchvision's RandomResizedCrop: the area evenly, the logarithm of the
    proportions evenly; up to ten times until the part fits, otherwise the largest part in the middle that has allowed
    proportions.

    Args:
        size: new side, or [height, width].
        scale: least and greatest area of the part, as a fraction of the image's.
        ratio: least and greatest width of the part, divided by its height.
        interpolation: as for `resize`.
    """

    size: Any
    scale: Any = (0.08, 1.0)
    ratio: Any = (3 / 4, 4 / 3)
    interpolation: str = "linear"

    keeps_shape: ClassVar[bool] = False

    def __post_init__(self) -> None:
        interpolation_flag(self.interpolation, "random_resized_crop")
        pair(self.size, "size", 1)
        number_range(self.scale, "scale", 0, 1)
        number_range(self.ratio, "ratio", 0, 2**31)
        for value, name in ((self.scale, "scale"), (self.ratio, "ratio")):
            if value[0] <= 0:
                raise TransformError(value, f"{name} is above 0", f"mend {name}")

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*self._size, image_shape(shape, "random_resized_crop")[2])

    def __call__(self, image: Array, rng: np.random.Generator, out: Array | None = None) -> Array:
        rows, columns, channels = image.shape
        top, left, height, width = self.draw(rows, columns, rng)
        part = image[top : top + height, left : left + width]
        resized = destination(out, (*self._size, channels), image.dtype)
        self._resize(part, self._width_and_height, resized, 0, 0, self._flag)
        return resized

    def draw(self, rows: int, columns: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
        """Draw (top, left, height, width) of a part of an image of that many rows and columns."""
        (least, greatest), (low, high) = self._scale, self._log_ratio
        for _ in range(_TRIES):
            share, form, down, across = rng.random(4).tolist()
            area = rows * columns * (least + (greatest - least) * share)
            ratio = math.exp(low + (high - low) * form)
            width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < width <= columns and 0 < height <= rows:
                return int((rows - height + 1) * down), int((columns - width + 1) * across), height, width
        return self._middle(rows, columns)

    def _middle(self, rows: int, columns: int) -> tuple[int, int, int, int]:
        least, greatest = self._ratio
        height, width = rows, columns
        if columns < least * rows:
            height = max(1, round(columns / least))
        elif columns > greatest * rows:
            width = max(1, round(rows * greatest))
        return (rows - height) // 2, (columns - width) // 2, height, width

    @cached_property
    def _resize(self) -> Any:
        """OpenCV's function, which only those who use it pay for."""
        import cv2

        return cv2.resize

    @cached_property
    def _width_and_height(self) -> tuple[int, int]:
        return self._size[::-1]

    @cached_property
    def _size(self) -> tuple[int, int]:
        return pair(self.size, "size", 1)

    @cached_property
    def _scale(self) -> tuple[float, float]:
        return number_range(self.scale, "scale", 0, 1)

    @cached_property
    def _ratio(self) -> tuple[float, float]:
        return number_range(self.ratio, "ratio", 0, 2**31)

    @cached_property
    def _log_ratio(self) -> tuple[float, float]:
        return math.log(self._ratio[0]), math.log(self._ratio[1])

    @cached_property
    def _flag(self) -> int:
        return interpolation_flag(self.interpolation, "random_resized_crop")
