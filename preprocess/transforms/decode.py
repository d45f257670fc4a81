"""Encoded pictures (JPEG, PNG and others) -> arrays of bytes."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

from preprocess.samples.errors import DecodeError, TransformError
from preprocess.samples.layout import Array
from preprocess.transforms.images import image_shape

#: The largest picture, height times width, such as 8192 x 8192: 192 MiB as RGB. A file of a few bytes can claim more.
MOST_PIXELS = 2**26

#: What Pillow may try. Not EPS, which it hands to Ghostscript.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")

#: What libjpeg-turbo calls pixels of 3 channels and of 1, and the colours of JPEG files that it does not turn to them.
_COLOURS = {3: "RGB", 1: "GRAY"}
_FOUR_COLOURS = ("CMYK", "YCCK")

Content = Array | bytes | bytearray | memoryview


class Scratch:
    """Memory for one picture at a time, so that not each asks the system for pages of its own.

    It begins between two multiples of 32: what begins at one, libjpeg-turbo writes past the caches (AVX2's
    non-temporal stores), and the next transform, which reads it at once, would wait for the memory: 7 % of both.

    Attributes:
        memory: what there is of it, uint8.
    """

    def __init__(self) -> None:
        self.memory = np.empty(0, np.uint8)

    def of(self, size: int) -> Array:
        """Return at least so many bytes, uint8; they overwrite the bytes that were returned before."""
        if self.memory.size < size:
            memory = np.empty(size + 32, np.uint8)
            self.memory = memory[(16 - memory.ctypes.data) % 32 :]
        return self.memory


def decode_picture(
    content: Content, channels: int = 3, out: Array | None = None, scratch: Scratch | None = None
) -> Array:
    """Decode one picture, the first of its file.

    JPEG is decoded by simplejpeg, else OpenCV, else Pillow; CMYK JPEG and PNG, WebP, BMP, GIF, TIFF and PNM by Pillow,
    else OpenCV: by the first that is installed. All of them give the same pixels of a JPEG if they were built with the
    same libjpeg-turbo, and of a lossless format. They differ in three things: a JPEG whose data are damaged, not cut
    off, may be refused by simplejpeg and decoded by the others, to nonsense in places; CMYK differs by a level between
    Pillow and OpenCV; TIFF and GIF have kinds that only one of them reads.

    Pixels are as stored: the orientation that EXIF notes is not applied (but TIFF's own is, by Pillow), alpha is
    dropped, colours of a palette are looked up, 16 bits are cut to their upper 8, colour profiles are not applied.
    CMYK becomes RGB. Grey becomes RGB by repetition; colour becomes grey by the luma of ITU-R BT.601, which a JPEG
    holds as it is.

    Args:
        content: the encoded picture, 1-D uint8.
        channels: 3 for RGB, 1 for grey.
        out: C-contiguous uint8 array that the result is written to if it has the result's shape.
        scratch: memory for the result otherwise, where the library can use it: valid until it is used again.

    Returns:
        (height, width, channels), uint8: `out` if it was written to, otherwise a new array.

    Raises:
        DecodeError: the content is no picture, is cut off or damaged, or has more than `MOST_PIXELS` pixels.
        ModuleNotFoundError: no library is installed that decodes it.
    """
    if channels not in (1, 3):
        raise ValueError(f"channels is {channels}: 3 for RGB or 1 for grey")
    if out is None and scratch is not None and (known := _in_scratch(content, channels, scratch)) is not None:
        return known
    view = _view(content)
    try:
        image = _decoded(view, channels, out, scratch)
    except ModuleNotFoundError:
        raise
    except Exception as cause:  # no library promises what it raises on broken content
        raise _named(cause, view) from cause
    if out is None or image is out or image.shape != out.shape or out.dtype != image.dtype:
        return image
    out[...] = image
    return out


def _in_scratch(content: Content, channels: int, scratch: Scratch) -> Array | None:
    """Decode a JPEG no larger than one before, as most are, without a step too many; None if it is anything else."""
    simplejpeg = _library("simplejpeg")
    if simplejpeg is None:
        return None
    try:
        height, width, stored, _ = simplejpeg.decode_jpeg_header(content)
        if stored in _FOUR_COLOURS or not 0 < height * width * channels <= scratch.memory.size:
            return None
        image: Array = simplejpeg.decode_jpeg(content, _COLOURS[channels], buffer=scratch.memory)
    except ValueError:  # it is damaged, or no JPEG
        return None
    return image


def image_size(content: Content) -> tuple[int, int]:
    """Return (height, width) of what `decode_picture` would give, from the header (with OpenCV alone, by decoding).

    Raises:
        DecodeError, ModuleNotFoundError: as `decode_picture`, but only what the header tells.
    """
    view = _view(content)
    try:
        return _size(view)
    except ModuleNotFoundError:
        raise
    except Exception as cause:  # as above
        raise _named(cause, view) from cause


def _view(content: Content) -> memoryview:
    view = memoryview(content)  # type: ignore[arg-type]
    if view.ndim != 1 or view.itemsize != 1 or not view.contiguous:
        raise TypeError(f"encoded content is a contiguous 1-D array of bytes, not {view.ndim}-D of {view.format!r}")
    return view


def _is_jpeg(view: memoryview) -> bool:
    return bytes(view[:3]) == b"\xff\xd8\xff"


def _named(cause: Exception, view: memoryview) -> DecodeError:
    head = f"which begin with {bytes(view[:4]).hex(' ')}" if len(view) else "so it is empty"
    return DecodeError(f"cannot decode the picture of {len(view)} bytes, {head}: {_reason(cause)}")


def _reason(cause: Exception) -> str:
    if type(cause).__name__ == "UnidentifiedImageError":  # its text holds an address in memory
        return f"it is none of {', '.join(_FORMATS)}, or its header is damaged"
    return str(cause) or type(cause).__name__


def _size(view: memoryview) -> tuple[int, int]:
    if _is_jpeg(view) and (simplejpeg := _library("simplejpeg")):
        height, width, _, _ = simplejpeg.decode_jpeg_header(view)
        return _checked_size(height, width)
    if _library("PIL.Image"):
        picture = _opened(view)
        return picture.height, picture.width
    height, width, _ = _by_opencv(view, 3).shape
    return height, width


def _decoded(view: memoryview, channels: int, out: Array | None, scratch: Scratch | None) -> Array:
    jpeg = _is_jpeg(view)
    if jpeg and _library("simplejpeg"):
        image = _by_simplejpeg(view, channels, out, scratch)
        if image is not None:
            return image
    if _library("PIL.Image"):
        picture = _opened(view)
        if not (jpeg and picture.mode != "CMYK" and _library("cv2")):
            return _by_pillow(picture, channels)
    return _by_opencv(view, channels)


def _by_simplejpeg(view: memoryview, channels: int, out: Array | None, scratch: Scratch | None) -> Array | None:
    """Decode a JPEG; None if it is CMYK. Any warning of libjpeg is an error, as cut off data are no more to it."""
    simplejpeg = _library("simplejpeg")
    height, width, stored, _ = simplejpeg.decode_jpeg_header(view)
    _checked_size(height, width)
    if stored in _FOUR_COLOURS:
        return None
    fits = (
        out is not None and out.shape == (height, width, channels) and out.flags.c_contiguous and out.dtype == np.uint8
    )
    buffer = out if fits else scratch.of(height * width * channels) if scratch else None
    image = simplejpeg.decode_jpeg(view, _COLOURS[channels], buffer=buffer)
    return out if fits else image


def _opened(view: memoryview) -> Any:
    """Read the header with Pillow."""
    picture = _library("PIL.Image").open(io.BytesIO(view), formats=_formats())
    _checked_size(picture.height, picture.width)
    return picture


@cache
def _formats() -> tuple[str, ...]:
    """Return the formats among these with which this Pillow was built."""
    image = _library("PIL.Image")
    image.init()
    return tuple(name for name in _FORMATS if name in image.OPEN)


def _by_pillow(picture: Any, channels: int) -> Array:
    if channels == 1 and picture.format in ("JPEG", "MPO") and picture.mode != "CMYK":
        picture.draft("L", picture.size)  # the luma that is stored, not one computed from rounded colours
    if picture.mode.startswith("I"):
        picture = _upper_bytes(picture)
    if picture.mode == "F":
        raise ValueError("its pixels are floating-point numbers, and a picture has whole ones of 8 or 16 bits")
    picture.info.pop("transparency", None)  # of which `convert` would warn
    wanted = "RGB" if channels == 3 else "L"
    if picture.mode not in (wanted, "L", "RGB"):
        picture = picture.convert("RGB")
    if picture.mode != wanted:
        picture = picture.convert(wanted)
    return np.array(picture).reshape(picture.height, picture.width, channels)


def _upper_bytes(picture: Any) -> Any:
    """Cut grey of 16 bits, which Pillow also holds in 32, to 8."""
    values = np.asarray(picture)
    if int(values.min()) < 0 or int(values.max()) >= 2**16:
        raise ValueError("its pixels have 32 bits, and a picture's have 8 or 16")
    return _library("PIL.Image").fromarray((values >> 8).astype(np.uint8))


def _by_opencv(view: memoryview, channels: int) -> Array:
    cv2 = _library("cv2")
    if not cv2:
        raise ModuleNotFoundError("no library for pictures of this format is installed: pip install pillow simplejpeg")
    flags = cv2.IMREAD_UNCHANGED
    if _is_jpeg(view):
        _check_end(view)
        flags = cv2.IMREAD_IGNORE_ORIENTATION | (cv2.IMREAD_COLOR if channels == 3 else cv2.IMREAD_GRAYSCALE)
    image = cv2.imdecode(np.frombuffer(view, np.uint8), flags)
    if image is None:
        raise ValueError("OpenCV finds it damaged, or does not know its format")
    _checked_size(*image.shape[:2])
    if image.dtype == np.uint16:
        image = (image >> 8).astype(np.uint8)
    if image.dtype != np.uint8:
        raise ValueError(f"its pixels are {image.dtype}, and a picture's have 8 or 16 bits")
    if image.ndim == 2:
        return np.repeat(image[..., None], channels, 2)
    colours = np.ascontiguousarray(image[..., 2::-1])  # it gives blue, green, red, alpha
    return colours if channels == 3 else _luma(colours)


def _check_end(view: memoryview) -> None:
    """OpenCV before 5 fills what a JPEG lacks with grey. In the data of a scan neither marker can occur."""
    content = bytes(view)
    if content.rfind(b"\xff\xd9") < content.rfind(b"\xff\xda"):
        raise ValueError("it is cut off: nothing marks its end")


def _luma(colours: Array) -> Array:
    """The grey of Pillow: ITU-R BT.601 in 16 bits, rounded."""
    red, green, blue = (colours[..., i].astype(np.uint32) for i in range(3))
    grey = (19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16
    return grey.astype(np.uint8)[..., None]


def _checked_size(height: int, width: int) -> tuple[int, int]:
    if height < 1 or width < 1 or height * width > MOST_PIXELS:
        raise ValueError(f"its size is {height} x {width}, and a picture has from 1 to {MOST_PIXELS} pixels")
    return height, width


@cache
def _library(name: str) -> Any:
    """Return a library, or None if it is not installed; only those who meet pictures pay for the import."""
    if name == "cv2":  # which reads this once, and unpacks a picture before it tells its size
        os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(MOST_PIXELS))
    try:
        return import_module(name)
    except ImportError:
        return None


@dataclass(frozen=True)
class Decode:
    """Decode a picture (JPEG, PNG and others, see `preprocess.transforms.decode`).

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
