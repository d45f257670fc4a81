"""Random brightness, contrast, saturation and hue, by OpenCV."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from preprocess.samples.errors import TransformError
from preprocess.samples.layout import Array
from preprocess.transforms.images import check_number, destination, image_shape, number_range, require_opencv

#: Shares of red, green and blue in grey (ITU-R BT.601).
_LUMA = (0.299, 0.587, 0.114)

#: Factors beyond this leave no picture; the bound finds slips.
_GREATEST = 1000.0


@dataclass(frozen=True)
class ColourJitter:
    """Change brightness, contrast, saturation and hue of an image of bytes, in random order.

    Each factor is drawn evenly from its range, as by torchvision's ColorJitter: 0 gives black (brightness), the mean
    grey (contrast) or the image in grey (saturation), 1 the image as it is; hue is turned by that part of the circle,
    in steps of 1/256. Every step gives bytes again, rounded. Grey images have no saturation and no hue to change.

    Args:
        brightness: b for a factor from [max(0, 1 - b), 1 + b], or the range itself.
        contrast: in the same way.
        saturation: in the same way.
        hue: h, from 0 to 0.5, for [-h, h], or the range itself.
    """

    brightness: Any = 0
    contrast: Any = 0
    saturation: Any = 0
    hue: Any = 0

    keeps_shape: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_opencv("colour_jitter")
        self._ranges  # noqa: B018 checks them

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if image_shape(shape, "colour_jitter")[2] not in (1, 3):
            raise TransformError(shape, "colour_jitter works on images of 1 or 3 channels", "leave out colour_jitter")
        return shape

    def __call__(self, image: Array, rng: np.random.Generator, out: Array | None = None) -> Array:
        if image.dtype != np.uint8:
            raise TransformError(str(image.dtype), "colour_jitter works on bytes", "put it before what makes no bytes")
        steps = (_brightness, _contrast, _saturation, _hue)
        order = rng.permutation(len(steps))
        factors = [None if ends is None else ends[0] + (ends[1] - ends[0]) * rng.random() for ends in self._ranges]
        for number in order:
            factor = factors[number]
            if factor is not None:
                image = steps[number](image, factor, destination(out, image.shape, image.dtype))
        return image

    @cached_property
    def _ranges(self) -> tuple[tuple[float, float] | None, ...]:
        """The range of each factor, None where it changes nothing."""
        ranges = [_factors(getattr(self, name), name) for name in ("brightness", "contrast", "saturation")]
        turns = self.hue
        if isinstance(turns, (int, float)):
            check_number(turns, "hue", 0, 0.5)
            turns = [-turns, turns]
        return tuple(
            None if ends == (neutral, neutral) else ends
            for ends, neutral in zip([*ranges, number_range(turns, "hue", -0.5, 0.5)], (1, 1, 1, 0))
        )


def _factors(value: Any, name: str) -> tuple[float, float]:
    if isinstance(value, (int, float)):
        check_number(value, name, 0, _GREATEST)
        return max(0.0, 1.0 - value), 1.0 + value
    return number_range(value, name, 0, _GREATEST)


def _brightness(image: Array, factor: float, out: Array) -> Array:
    return _scaled(image, factor, 0.0, out)


def _contrast(image: Array, factor: float, out: Array) -> Array:
    import cv2

    grey = image if image.shape[2] == 1 else cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    return _scaled(image, factor, (1 - factor) * cv2.mean(grey)[0], out)


def _scaled(image: Array, factor: float, added: float, out: Array) -> Array:
    import cv2

    cv2.addWeighted(image, factor, image, 0.0, added, dst=out)
    return out


def _saturation(image: Array, factor: float, out: Array) -> Array:
    import cv2

    if image.shape[2] == 1:
        return image
    cv2.transform(image, factor * np.eye(3) + (1 - factor) * np.array([_LUMA] * 3), dst=out)
    return out


def _hue(image: Array, turn: float, out: Array) -> Array:
    import cv2

    if image.shape[2] == 1:
        return image
    coloured = cv2.cvtColor(image, cv2.COLOR_RGB2HSV_FULL)
    coloured[..., 0] += np.uint8(round(turn * 256) % 256)
    cv2.cvtColor(coloured, cv2.COLOR_HSV2RGB_FULL, dst=out)
    return out
