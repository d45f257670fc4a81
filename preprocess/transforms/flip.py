"""Random mirror images."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

from preprocess.samples.errors import TransformError, spelling_advice
from preprocess.samples.layout import Array
from preprocess.transforms.images import check_number, destination, image_shape


@dataclass(frozen=True)
class Flip:
    """Mirror the image with a probability.

    Args:
        probability: from 0 to 1.
        direction: horizontal (left and right change places) or vertical.
    """

    probability: float = 0.5
    direction: str = "horizontal"

    keeps_shape: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number(self.probability, "probability", 0, 1)
        if self.direction not in ("horizontal", "vertical"):
            advice = spelling_advice(str(self.direction), ("horizontal", "vertical"))
            raise TransformError(self.direction, "flip knows no such direction", advice)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return image_shape(shape, "flip")

    def __call__(self, image: Array, rng: np.random.Generator, out: Array | None = None) -> Array:
        if rng.random() >= self.probability:
            return image
        if self._mirror is not None and image.dtype == np.uint8:
            # Ten times as fast as NumPy where a row's pixels change places. It may write over what it reads.
            mirrored = destination(out, image.shape, image.dtype)
            self._mirror(image, 1 if self.direction == "horizontal" else 0, mirrored)
            return mirrored
        view = image[:, ::-1] if self.direction == "horizontal" else image[::-1]
        if image is not out:
            return view
        out[...] = view
        return out

    @cached_property
    def _mirror(self) -> Any:
        """OpenCV's function, or None if it is not installed."""
        if find_spec("cv2") is None:
            return None
        import cv2

        return cv2.flip
