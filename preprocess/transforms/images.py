"""What the built-in transforms have in common: checks of images and of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from preprocess.errors import TransformError
from preprocess.layout import Array

__all__ = ["check_number", "image_shape", "pair", "require_opencv", "with_channels"]


def pair(size: Any, name: str, least: int) -> tuple[int, int]:
    """Return a parameter that is a whole number, or two, as (vertical, horizontal).

    Raises:
        TransformError: it is neither, or a number is below `least`.
    """
    numbers = [size, size] if isinstance(size, int) else list(size) if isinstance(size, Sequence) else []
    if len(numbers) != 2 or not all(isinstance(n, int) and not isinstance(n, bool) and n >= least for n in numbers):
        rule = f"{name} is a whole number, or [vertical, horizontal], of at least {least}"
        raise TransformError(size, rule, f"write {name}: 28 or {name}: [28, 28]")
    return numbers[0], numbers[1]


def check_number(value: Any, name: str, low: float, high: float) -> None:
    """Check that a parameter is a number within [low, high].

    Raises:
        TransformError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise TransformError(value, f"{name} is a number from {low} to {high}", f"mend {name}")


def require_opencv(what: str) -> None:
    """Check that OpenCV is installed.

    Raises:
        TransformError: it is not.
    """
    if find_spec("cv2") is None:
        raise TransformError(what, "needs OpenCV", "pip install opencv-python-headless")


def image_shape(shape: tuple[int, ...], what: str) -> tuple[int, int, int]:
    """Return (height, width, channels) of a shape that is an image.

    Raises:
        TransformError: it is not.
    """
    if len(shape) != 3:
        raise TransformError(shape, f"{what} works on images of (height, width, channels)", f"leave out {what}")
    return shape[0], shape[1], shape[2]


def with_channels(image: Any, channels: int) -> Array:
    """Give back the channel axis that OpenCV drops where there is one channel."""
    return np.asarray(image).reshape(*image.shape[:2], channels)
