"""Decoding, as the first step of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar

import numpy as np

from preprocess.samples.decode import decode_picture
from preprocess.samples.errors import TransformError
from preprocess.samples.layout import Array
from preprocess.transforms.images import image_shape


@dataclass(frozen=True)
class Decode:
    """Decode a picture (JPEG, PNG and others, see `preprocess.samples.decode`).

    Args:
        channels: 3 for RGB, 1 for grey.
    """

    channels: int = 3

    keeps_shape: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.channels not in (1, 3) or isinstance(self.channels, bool):
            raise TransformError(self.channels, "channels is 3 for RGB or 1 for grey", "write channels: 3")
        if not any(find_spec(library) for library in ("simplejpeg", "cv2", "PIL")):
            raise TransformError("decode", "needs a library that decodes", "pip install simplejpeg pillow")

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        height, width, _ = image_shape(shape, "decode")
        return height, width, self.channels

    def __call__(self, image: Array, rng: np.random.Generator, out: Array | None = None) -> Array:
        return decode_picture(image, self.channels, out)
