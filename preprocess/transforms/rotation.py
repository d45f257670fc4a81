"""Random rotation, by OpenCV."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from preprocess.samples.errors import TransformError
from preprocess.samples.layout import Array
from preprocess.transforms.images import check_number, destination, image_shape, require_opencv


@dataclass(frozen=True)
class Rotation:
    """Rotate around the middle by an angle drawn evenly from [-degrees, degrees], with linear interpolation.

    Args:
        degrees: largest angle, from 0 to 180.
        fill: value of the pixels that come from outside.
    """

    degrees: float
    fill: float = 0

    keeps_shape: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_opencv("rotation")
        check_number(self.degrees, "degrees", 0, 180)
        check_number(self.fill, "fill", -(2**31), 2**31)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        channels = image_shape(shape, "rotation")[2]
        if channels > 4:
            raise TransformError(shape, "rotation works on images of at most 4 channels", "leave out rotation")
        return shape

    def __call__(self, image: Array, rng: np.random.Generator, out: Array | None = None) -> Array:
        import cv2

        height, width, _ = image.shape
        angle = float(rng.uniform(-self.degrees, self.degrees))
        matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), angle, 1.0)
        rotated = destination(out, image.shape, image.dtype)
        cv2.warpAffine(
            image.copy() if image is out else np.ascontiguousarray(image),
            matrix,
            (width, height),
            dst=rotated,
            flags=cv2.INTER_LINEAR,
            borderMode=cv2.BORDER_CONSTANT,
            borderValue=(self.fill,) * 4,
        )
        return rotated
