"""The built-in transforms of images: resize, crops, flip, rotation and colour jitter, most of them by OpenCV."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any, ClassVar

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


def _check_number(value: Any, name: str, low: float, high: float) -> None:
    """Check that a parameter is a number within [low, high].

    Raises:
        TransformError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise TransformError(value, f"{name} is a number from {low} to {high}", f"mend {name}")


def _number_range(value: Any, name: str, low: float, high: float) -> tuple[float, float]:
    """Return a parameter that is a range [least, greatest] within [low, high].

    Raises:
        TransformError: it is not.
    """
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise TransformError(value, f"{name} is a range of two numbers", f"write {name}: [{low:g}, {high:g}]")
    for number in value:
        _check_number(number, name, low, high)
    if value[0] > value[1]:
        rule = f"{name} is a range [least, greatest]"
        raise TransformError(value, rule, f"write {name}: [{value[1]}, {value[0]}]")
    return float(value[0]), float(value[1])


def _require_opencv(what: str) -> None:
    """Check that OpenCV is installed.

    Raises:
        TransformError: it is not.
    """
    if find_spec("cv2") is None:
        raise TransformError(what, "needs OpenCV", "pip install opencv-python-headless")


def _interpolation_flag(name: str, what: str) -> int:
    """Return OpenCV's number of an interpolation, see `Resize`.

    Raises:
        TransformError: there is no such one, or OpenCV is not installed.
    """
    _require_opencv(what)
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


def _set_checked(transform: Any, **values: Any) -> None:
    """Set fields of a frozen transform to their checked form: (vertical, horizontal) of a size, floats of a range."""
    for name, value in values.items():
        object.__setattr__(transform, name, value)


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
        _interpolation_flag(self.interpolation, "resize")
        if (self.size is None) == (self.shortest is None):
            given = {"size": self.size, "shortest": self.shortest}
            raise TransformError(given, "resize takes size or shortest, one of them", "write resize: {size: 224}")
        if self.size is not None:
            _set_checked(self, size=pair(self.size, "size", 1))
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
        if self.size is not None:
            return self.size[0], self.size[1]
        if height < 0 or width < 0:
            return -1, -1
        if height <= width:
            return self.shortest, self.shortest * width // height
        return self.shortest * height // width, self.shortest

    @cached_property
    def _flag(self) -> int:
        return _interpolation_flag(self.interpolation, "resize")


@dataclass(frozen=True)
class RandomCrop:
    """Pad all sides, then cut out a part of the given size, every place equally likely.

    Args:
        size: side of the part, or [height, width].
        padding: pixels added to each side, or [vertical, horizontal].
        fill: value of the added pixels.
    """

    size: Any
    padding: Any = 0
    fill: float = 0

    keeps_shape: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _set_checked(self, size=pair(self.size, "size", 1), padding=pair(self.padding, "padding", 0))
        _check_number(self.fill, "fill", -(2**31), 2**31)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        height, width, channels = image_shape(shape, "random_crop")
        self._check_fits(height, width)
        return (*self.size, channels)

    def __call__(self, image: Array, rng: np.random.Generator, out: Array | None = None) -> Array:
        (height, width), (pad_y, pad_x) = self.size, self.padding
        rows, columns, _ = image.shape
        self._check_fits(rows, columns)
        top = int(rng.integers(rows + 2 * pad_y - height + 1)) - pad_y
        left = int(rng.integers(columns + 2 * pad_x - width + 1)) - pad_x
        return self._cut(image, top, left, out)

    def _check_fits(self, height: int, width: int) -> None:
        pad_y, pad_x = self.padding
        check_fits(self.size, height + 2 * pad_y if height >= 0 else -1, width + 2 * pad_x if width >= 0 else -1)

    def _cut(self, image: Array, top: int, left: int, out: Array | None) -> Array:
        """Cut at a place that may reach over the edges, without making the padded image."""
        height, width = self.size
        rows, columns, channels = image.shape
        if top >= 0 and left >= 0 and top + height <= rows and left + width <= columns:
            return image[top : top + height, left : left + width]
        part = destination(out, (height, width, channels), image.dtype)
        part.fill(self.fill)
        y0, y1, x0, x1 = max(top, 0), min(top + height, rows), max(left, 0), min(left + width, columns)
        if y0 < y1 and x0 < x1:
            part[y0 - top : y1 - top, x0 - left : x1 - left] = image[y0:y1, x0:x1]
        return part


@dataclass(frozen=True)
class CenterCrop:
    """Cut out the middle.

    Args:
        size: side of the part, or [height, width].
    """

    size: Any

    keeps_shape: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _set_checked(self, size=pair(self.size, "size", 1))

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        height, width, channels = image_shape(shape, "center_crop")
        check_fits(self.size, height, width)
        return (*self.size, channels)

    def __call__(self, image: Array, rng: np.random.Generator, out: Array | None = None) -> Array:
        height, width = self.size
        check_fits(self.size, *image.shape[:2])
        top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
        return image[top : top + height, left : left + width]


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
        _interpolation_flag(self.interpolation, "random_resized_crop")
        scale, ratio = _number_range(self.scale, "scale", 0, 1), _number_range(self.ratio, "ratio", 0, 2**31)
        _set_checked(self, size=pair(self.size, "size", 1), scale=scale, ratio=ratio)
        for value, name in ((self.scale, "scale"), (self.ratio, "ratio")):
            if value[0] <= 0:
                raise TransformError(value, f"{name} is above 0", f"mend {name}")

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*self.size, image_shape(shape, "random_resized_crop")[2])

    def __call__(self, image: Array, rng: np.random.Generator, out: Array | None = None) -> Array:
        rows, columns, channels = image.shape
        top, left, height, width = self.draw(rows, columns, rng)
        part = image[top : top + height, left : left + width]
        resized = destination(out, (*self.size, channels), image.dtype)
        self._resize(part, self.size[::-1], resized, 0, 0, self._flag)
        return resized

    def draw(self, rows: int, columns: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
        """Draw (top, left, height, width) of a part of an image of that many rows and columns."""
        (least, greatest), (low, high) = self.scale, self._log_ratio
        for _ in range(_TRIES):
            share, form, down, across = rng.random(4).tolist()
            area = rows * columns * (least + (greatest - least) * share)
            ratio = math.exp(low + (high - low) * form)
            width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < width <= columns and 0 < height <= rows:
                return int((rows - height + 1) * down), int((columns - width + 1) * across), height, width
        return self._middle(rows, columns)

    def _middle(self, rows: int, columns: int) -> tuple[int, int, int, int]:
        least, greatest = self.ratio
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
    def _log_ratio(self) -> tuple[float, float]:
        return math.log(self.ratio[0]), math.log(self.ratio[1])

    @cached_property
    def _flag(self) -> int:
        return _interpolation_flag(self.interpolation, "random_resized_crop")


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
        _check_number(self.probability, "probability", 0, 1)
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
        _require_opencv("rotation")
        _check_number(self.degrees, "degrees", 0, 180)
        _check_number(self.fill, "fill", -(2**31), 2**31)

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
        _require_opencv("colour_jitter")
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
            _check_number(turns, "hue", 0, 0.5)
            turns = [-turns, turns]
        return tuple(
            None if ends == (neutral, neutral) else ends
            for ends, neutral in zip([*ranges, _number_range(turns, "hue", -0.5, 0.5)], (1, 1, 1, 0))
        )


def _factors(value: Any, name: str) -> tuple[float, float]:
    if isinstance(value, (int, float)):
        _check_number(value, name, 0, _GREATEST)
        return max(0.0, 1.0 - value), 1.0 + value
    return _number_range(value, name, 0, _GREATEST)


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
