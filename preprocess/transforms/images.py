"""What the built-in transforms have in common: checks of images and of parameters, and where results are written."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from preprocess.samples.errors import TransformError, spelling_advice
from preprocess.samples.layout import Array

#: OpenCV's names. It promises the same bits on every processor of `linear_exact` alone, which takes twice as long as
#: `linear`; that rounds as the processor's instructions make it fast.
_INTERPOLATIONS = {
    "linear": "INTER_LINEAR",
    "linear_exact": "INTER_LINEAR_EXACT",
    "area": "INTER_AREA",
    "cubic": "INTER_CUBIC",
    "nearest": "INTER_NEAREST",
}


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


def number_range(value: Any, name: str, low: float, high: float) -> tuple[float, float]:
    """Return a parameter that is a range [least, greatest] within [low, high].

    Raises:
        TransformError: it is not.
    """
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise TransformError(value, f"{name} is a range of two numbers", f"write {name}: [{low:g}, {high:g}]")
    for number in value:
        check_number(number, name, low, high)
    if value[0] > value[1]:
        rule = f"{name} is a range [least, greatest]"
        raise TransformError(value, rule, f"write {name}: [{value[1]}, {value[0]}]")
    return float(value[0]), float(value[1])


def require_opencv(what: str) -> None:
    """Check that OpenCV is installed.

    Raises:
        TransformError: it is not.
    """
    if find_spec("cv2") is None:
        raise TransformError(what, "needs OpenCV", "pip install opencv-python-headless")


def interpolation_flag(name: str, what: str) -> int:
    """Return OpenCV's number of an interpolation, see `Resize`.

    Raises:
        TransformError: there is no such one, or OpenCV is not installed.
    """
    require_opencv(what)
    import cv2

    if name not in _INTERPOLATIONS:
        raise TransformError(name, f"{what} knows no such interpolation", spelling_advice(str(name), _INTERPOLATIONS))
    return int(getattr(cv2, _INTERPOLATIONS[name]))


def image_shape(shape: tuple[int, ...], what: str) -> tuple[int, int, int]:
    """Return (height, width, channels) of a shape that is an image; -1 stands for a height or width that varies.

    Raises:
        TransformError: it is not.
    """
    if len(shape) != 3:
        raise TransformError(shape, f"{what} works on images of (height, width, channels)", f"leave out {what}")
    return shape[0], shape[1], shape[2]


def check_fits(size: tuple[int, int], height: int, width: int) -> None:
    """Check that a crop is no larger than an image, as far as the image's height and width are known (not -1).

    Raises:
        TransformError: it is.
    """
    if size[0] > height >= 0 or size[1] > width >= 0:
        rule = f"a crop is no larger than the image, which is {height} x {width} with its padding"
        raise TransformError(list(size), rule, "make size smaller or padding larger, or resize before")


def destination(out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return where to write a result: `out` if it has the result's shape and dtype, otherwise a new array."""
    if out is not None and out.shape == shape and out.dtype == dtype:
        return out
    return np.empty(shape, dtype)
