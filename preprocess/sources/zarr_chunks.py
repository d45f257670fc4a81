"""The chunks of a Zarr array, before they are unpacked: whether they are whole, and what memory they take.

Of a chunk that is cut off, Blosc unpacks what lies behind it in memory.
"""

from __future__ import annotations

import itertools
import math
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from preprocess.files.memory import SMALL_BYTES, check_claim
from preprocess.files.reading import open_descriptor
from preprocess.sources.damage import DamageError
from preprocess.sources.zarr_files import MEND

_BLOSC = struct.Struct("<4xI4xI")  # of Blosc: the bytes that it unpacks to, and its own size, header included


class CheckedArray:
    """A Zarr array whose chunks are looked at before they are unpacked.

    Attributes:
        shape, dtype, chunks, attrs: the array's.

    Args:
        array: the opened array.
        path: the folder of its store.

    Raises:
        NeedsTooMuchMemory: a chunk takes more than may be taken.
    """

    def __init__(self, array: Any, path: str) -> None:
        self._array, self._root = array, Path(path)
        self.shape, self.dtype, self.chunks, self.attrs = array.shape, array.dtype, array.chunks, array.attrs
        self._grid = getattr(array, "shards", None) or array.chunks
        """What lies in one file."""
        self._is_blosc = _outer_codec(array) == "blosc"
        self._folder = self._root / array.path.strip("/")
        check_claim(self._folder, self._bytes(self.chunks), "a chunk")

    def __getitem__(self, steps: slice) -> Any:
        """Read these steps.

        Raises:
            DamageError: a chunk is cut off.
            NeedsTooMuchMemory: they take more than their chunks can hold, or than may be taken.
        """
        stop = min(steps.stop, self.shape[0])
        claimed = max(self._bytes((stop - steps.start, *self.shape[1:])), self._bytes(self.chunks))
        if self._is_blosc or claimed > SMALL_BYTES:
            stored = sum(self._check(self._root / self._key(place)) for place in self._places(steps.start, stop))
            check_claim(self._folder, claimed, f"steps {steps.start} to {stop}", stored)
        return self._array[steps]

    def _places(self, start: int, stop: int) -> Iterator[tuple[int, ...]]:
        """Where the files lie, in numbers of files, that hold these steps."""
        sides = [range(-(-length // chunk)) for length, chunk in zip(self.shape[1:], self._grid[1:])]
        return itertools.product(range(start // self._grid[0], -(-stop // self._grid[0])), *sides)

    def _key(self, place: tuple[int, ...]) -> str:
        """The file there, seen from the store's folder."""
        metadata = getattr(self._array, "metadata", None)
        if metadata is None:  # zarr 2
            return str(self._array._chunk_key(place))
        return f"{self._array.path.strip('/')}/{metadata.encode_chunk_key(place)}"

    def _check(self, file: Path) -> int:
        """Return the bytes of a file of chunks; 0 if there is none, since its values are the fill value."""
        try:
            descriptor = open_descriptor(file)
        except FileNotFoundError:
            return 0
        try:
            size = os.fstat(descriptor).st_size
            header = os.pread(descriptor, _BLOSC.size, 0) if self._is_blosc else b""
        finally:
            os.close(descriptor)
        if self._is_blosc:
            whole = len(header) == _BLOSC.size
            unpacked, own = _BLOSC.unpack(header) if whole else (0, 0)
            if own != size:
                told = f"{own} bytes" if whole else "a header"
                raise DamageError(str(file), f"has {size} bytes, and should have {told}", MEND)
            check_claim(file, unpacked, stored=size)
        return size

    def _bytes(self, shape: tuple[int, ...]) -> int:
        return math.prod(shape) * int(self.dtype.itemsize)


def _outer_codec(array: Any) -> str:
    """What packed the files of an array last."""
    metadata = getattr(array, "metadata", None)
    if metadata is None:  # zarr 2
        return "" if array.compressor is None else str(array.compressor.codec_id)
    noted = metadata.to_dict()
    codec = noted["codecs"][-1] if noted.get("codecs") else noted.get("compressor") or {}
    return str(codec.get("name", codec.get("id", ""))).removeprefix("numcodecs.")
