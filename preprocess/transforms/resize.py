"""Resize, by OpenCV."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from preprocess.errors import TransformError, nearest
from preprocess.layout import Array
from preprocess.transforms.images import image_shape, pair, require_opencv, with_channels

__all__ = ["Resize"]


@dataclass(frozen=True)
class Resize:
    """Scale the image to a fixed size, whatever its proportions.

    Args:
        size: new side, or [height, width].
        interpolation: linear, area (antialiased when shrinking), cubic or nearest.
    """

    size: Any
    interpolation: str = "linear"

    def __post_init__(self) -> None:
        require_opencv("resize")
        pair(self.size, "size", 1)
        if self.interpolation not in _interpolations():
            advice = nearest(str(self.interpolation), _interpolations())
            raise TransformError(self.interpolation, "resize knows no such interpolation", advice)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*pair(self.size, "size", 1), image_shape(shape, "resize")[2])

    def __call__(self, image: Array, rng: np.random.Generator) -> Array:
        import cv2

        height, width = pair(self.size, "size", 1)
        flag = getattr(cv2, _interpolations()[self.interpolation])
        resized = cv2.resize(np.ascontiguousarray(image), (width, height), interpolation=flag)
        return with_channels(resized, image.shape[2])


def _interpolations() -> dict[str, str]:
    return {"linear": "INTER_LINEAR", "area": "INTER_AREA", "cubic": "INTER_CUBIC", "nearest": "INTER_NEAREST"}
