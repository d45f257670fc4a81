"""The stored form of samples in a converted file, as the bytes of an image file or of an array; made in blocks."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np

from preprocess.samples.errors import DataSpecError
from preprocess.samples.layout import Array, SampleLayout
from preprocess.sources.source import Source, open_source


class ConversionError(DataSpecError):
    """A conversion that was asked for wrongly, or of data that cannot be converted so."""


class ConversionFailure(RuntimeError):
    """A conversion that was begun and could not go on; its finished part is kept."""


@dataclass(frozen=True)
class Split:
    """One split of the converted data.

    Attributes:
        name: "train" or "held_out".
        source, arguments: what `open_source` is given.
    """

    name: str
    source: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def open(self) -> Source:
        """Open the source of its samples. Raises SourceError."""
        return open_source(self.source, self.arguments)


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
    """The stored form of a source's samples.

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
    if not 1 <= quality <= 100:
        raise ConversionError(quality, "the quality of JPEG goes from 1 to 100", "write --quality 90")
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


def _check_encoder(encoding: Encoding) -> None:
    package = {"png": ("cv2", "opencv-python-headless"), "jpeg": ("simplejpeg", "simplejpeg")}.get(encoding)
    if package is not None and find_spec(package[0]) is None:
        raise ConversionError(encoding, f"writing it needs {package[1]}", f"pip install {package[1]}")


#: Length, in its row, of a sample that was left out.
SKIPPED = -1


@dataclass(frozen=True)
class Block:
    """The samples start, start + 1 ... stop - 1 of a split, given by its place in the list of splits."""

    split: int
    start: int
    stop: int


@dataclass(frozen=True)
class FailedSample:
    """A sample that could not be made.

    Attributes:
        split: name of its split.
        sample: index in the source.
        name: what the source calls it, such as the path of a file.
        reason: the error.
    """

    split: str
    sample: int
    name: str
    reason: str


@dataclass(frozen=True)
class MadeBlock:
    """The samples of a block.

    Attributes:
        content: their bytes, end to end.
        rows: for each, its row, see `row_dtype`.
        failures: which ones could not be made; their rows say SKIPPED.
    """

    content: bytes
    rows: Array
    failures: tuple[FailedSample, ...]


def row_dtype(target_shape: tuple[int, ...], target_dtype: str) -> np.dtype[Any]:
    """Return the dtype of a sample's record, which holds all but its bytes."""
    target = np.dtype(target_dtype).newbyteorder("<")
    fields: list[Any] = [("length", "<i8"), ("crc32", "<u4"), ("height", "<i4"), ("width", "<i4")]
    return np.dtype([*fields, ("target", target, target_shape)])


class BlockMaker:
    """Makes blocks. A worker is given a copy: with the lists of images, so that all have the same, and each is made
    once; other sources it opens itself when they are first needed.

    Args:
        splits: the splits.
        sources: their opened sources.
        packing: how samples are stored.
        rows: the dtype of a row.
    """

    def __init__(
        self, splits: Sequence[Split], sources: Sequence[Source], packing: StoredForm, rows: np.dtype[Any]
    ) -> None:
        self._splits, self._packing, self._rows = tuple(splits), packing, rows
        self._sources = dict(enumerate(sources))

    def __call__(self, block: Block) -> MadeBlock:
        """Make a block.

        Raises:
            SourceError: the source cannot be opened.
            OSError: the system cannot read a file; not one of a broken file.
        """
        rows = np.zeros(block.stop - block.start, self._rows)
        rows["length"] = SKIPPED
        contents, failures = [], []
        for row, index in enumerate(range(block.start, block.stop)):
            try:
                content, rows[row] = self._make(block.split, index)
                contents.append(content)
            except ModuleNotFoundError:
                raise
            except Exception as cause:  # the user's code may raise anything
                if isinstance(cause, OSError) and cause.errno is not None:
                    raise
                failures.append(self._failure(block.split, index, cause))
        return MadeBlock(b"".join(contents), rows, tuple(failures))

    def __getstate__(self) -> dict[str, Any]:
        kept = {split: source for split, source in self._sources.items() if getattr(source, "encoded", False)}
        return self.__dict__ | {"_sources": kept}

    def source(self, split: int) -> Source:
        """Return the opened source of a split."""
        if split not in self._sources:
            self._sources[split] = self._splits[split].open()
        return self._sources[split]

    def _make(self, split: int, index: int) -> tuple[bytes, tuple[Any, ...]]:
        source = self.source(split)
        sample, target = source.read(index)
        packed = self._packing.pack(sample)
        value = np.asarray(target)
        wanted = self._rows["target"]
        if value.shape != wanted.shape or not np.can_cast(value.dtype, wanted.base, "same_kind"):
            rule = f"its target is {value.shape} of {value.dtype}, the first sample's {wanted.shape}"
            raise ValueError(f"{rule} of {wanted.base}")
        content = packed.content
        return content, (len(content), zlib.crc32(content), packed.height, packed.width, value)

    def _failure(self, split: int, index: int, cause: Exception) -> FailedSample:
        source, name = self.source(split), self._splits[split].name
        describe = getattr(source, "describe", None)
        called = describe(index) if describe else f"{self._splits[split].source}, {name} sample {index}"
        return FailedSample(name, index, called, f"{type(cause).__name__}: {cause}")
