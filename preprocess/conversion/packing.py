"""How one sample is stored: as the bytes of an image file, or as the bytes of an array."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np

from preprocess.conversion.errors import ConversionError
from preprocess.samples.layout import Array, SampleLayout
from preprocess.sources.source import Source

#: files: image files as they are; png, jpeg: images in that format; decoded: arrays.
Encoding = Literal["files", "png", "jpeg", "decoded"]

#: Arrays of bytes with sides up to this are stored decoded: a file's header would be a large part of them.
TINY = 64

_HEADS = {"png": b"\x89PNG\r\n\x1a\n", "jpeg": b"\xff\xd8\xff"}


@dataclass(frozen=True)
class Packed:
    """A stored sample: its bytes, and the (height, width) of the image; (0, 0) if it is stored as an array."""

    content: bytes
    height: int = 0
    width: int = 0


@dataclass(frozen=True)
class StoredForm:
    """How the samples of a source are stored.

    Attributes:
        encoding: see `Encoding`.
        encoded: the source's samples are encoded images.
        channels: channels of the decoded images.
        quality: JPEG's quality, 1 to 100.
        shape, dtype: shape and dtype of every sample that is stored decoded; () and "uint8" for the others.
    """

    encoding: Encoding
    encoded: bool
    channels: int
    quality: int
    shape: tuple[int, ...] = ()
    dtype: str = "uint8"

    @property
    def sample_bytes(self) -> int | None:
        """Bytes of each sample, or None if they differ."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize if self.encoding == "decoded" else None

    def pack(self, sample: Any) -> Packed:
        """Return the stored form of an input. An encoded image is decoded, to see that it is whole.

        Raises:
            ValueError: it cannot be decoded, or is not like the others.
        """
        if not self.encoded:
            return self._pack_array(np.asarray(sample))
        from preprocess.transforms.decode import decode_picture

        image = decode_picture(sample, self.channels)
        if self.encoding == "decoded":
            return self._pack_array(image)
        content = bytes(sample)
        if self.encoding == "files" or content.startswith(_HEADS[self.encoding]):
            return Packed(content, *image.shape[:2])
        return Packed(self._encode(image), *image.shape[:2])

    def _pack_array(self, array: Array) -> Packed:
        if self.encoding == "decoded":
            if array.shape != self.shape or array.dtype != self.dtype:
                raise ValueError(f"it is {array.shape} of {array.dtype}, the first is {self.shape} of {self.dtype}")
            return Packed(array.tobytes())
        if array.ndim != 3 or array.shape[2] != self.channels or array.dtype != np.uint8:
            wanted = f"(height, width, {self.channels}) of uint8"
            raise ValueError(f"it is {array.shape} of {array.dtype}, images are {wanted}")
        return Packed(self._encode(array), *array.shape[:2])

    def _encode(self, image: Array) -> bytes:
        image = np.ascontiguousarray(image)
        if self.encoding == "jpeg":
            import simplejpeg

            space = "RGB" if self.channels == 3 else "GRAY"
            return bytes(simplejpeg.encode_jpeg(image, quality=self.quality, colorspace=space, colorsubsampling="444"))
        import cv2

        _, content = cv2.imencode(".png", image[..., ::-1] if self.channels == 3 else image)
        return bytes(content)


def choose_packing(source: Source, encoding: Encoding | None, channels: int, quality: int, what: str) -> StoredForm:
    """Return how the samples of a source are stored; encoding None leaves the choice to what they are.

    Raises:
        ConversionError: they cannot be stored in that way.
    """
    _check_quality(quality)
    encoded = bool(getattr(source, "encoded", False))
    if encoded:
        chosen = encoding or "files"
        if chosen != "decoded":
            _check_encoder(chosen)
            return StoredForm(chosen, True, channels, quality)
    layout = source.layout
    if encoded and -1 in layout.input_shape:
        rule = "its images differ in size, and arrays of one data set do not"
        raise ConversionError(what, rule, "leave out --decoded, and resize when training")
    if not encoded:
        chosen = _check_array(encoding, layout, what)
        if chosen != "decoded":
            _check_encoder(chosen)
            return StoredForm(chosen, False, layout.input_shape[2], quality)
    return StoredForm("decoded", encoded, channels, quality, layout.input_shape, layout.input_dtype)


def _check_array(encoding: Encoding | None, layout: SampleLayout, what: str) -> Encoding:
    """The encoding of samples that come as arrays."""
    shape, dtype = layout.input_shape, layout.input_dtype
    is_image = len(shape) == 3 and shape[2] in (1, 3) and dtype == "uint8"
    if encoding is None:
        return "png" if is_image and max(shape[:2]) > TINY else "decoded"
    if encoding != "decoded" and not is_image:
        rule = f"its samples are {shape} of {dtype}; images are (height, width, 1 or 3) of uint8"
        raise ConversionError(what, rule, "leave out --encoded")
    return encoding


def _check_quality(quality: int) -> None:
    if not 1 <= quality <= 100:
        raise ConversionError(quality, "the quality of JPEG goes from 1 to 100", "write --quality 90")


def _check_encoder(encoding: Encoding) -> None:
    package = {"png": ("cv2", "opencv-python-headless"), "jpeg": ("simplejpeg", "simplejpeg")}.get(encoding)
    if package is not None and find_spec(package[0]) is None:
        raise ConversionError(encoding, f"writing it needs {package[1]}", f"pip install {package[1]}")
