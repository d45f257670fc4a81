"""Random mirror images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from preprocess.errors import TransformError, nearest
from preprocess.layout import Array
from preprocess.transforms.images import check_number, image_shape

__all__ = ["Flip"]


@dataclass(frozen=True)
class Flip:
    """Mirror the image with a probability.

    Args:
        probability: from 0 to 1.
        direction: horizontal (left and right change places) or vertical.
    """

    probability: float = 0.5
    direction: str = "horizontal"

    def __post_init__(self) -> None:
        check_number(self.probability, "probability", 0, 1)
        if self.direction not in ("horizontal", "vertical"):
            advice = nearest(str(self.direction), ("horizontal", "vertical"))
            raise TransformError(self.direction, "flip knows no such direction", advice)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return image_shape(shape, "flip")

    def __call__(self, image: Array, rng: np.random.Generator) -> Array:
        if rng.random() >= self.probability:
            return image
        return image[:, ::-1] if self.direction == "horizontal" else image[::-1]
