"""The chunks of a Zarr array, before they are unpacked: whether they are whole, and what memory they take.

Of a chunk that is cut off, Blosc unpacks what lies behind it in memory. And two megabytes of zlib may unpack to two
gigabytes, whatever the metadata say of the chunk; so what could is unpacked in pieces first, and counted.
"""

from __future__ import annotations

import bz2
import itertools
import lzma
import math
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from preprocess.files.memory import SMALL_BYTES, check_claim
from preprocess.files.reading import open_descriptor
from preprocess.sources.checked_files import DamageError
from preprocess.sources.zarr_files import MEND

_BLOSC = struct.Struct("<4xI4xI")  # of Blosc: the bytes that it unpacks to, and its own size, header included
_LZ4 = struct.Struct("<I")  # of numcodecs' LZ4: the bytes that it unpacks to
_ZSTD = b"\x28\xb5\x2f\xfd"
_HEADER_BYTES = 18  # of zstd's, the longest
_PIECE = 1 << 16
_ZLIB_EXPANSION = 1032  # the most
_STREAMS: dict[str, Callable[[], Any]] = {
    "zlib": zlib.decompressobj,
    "gzip": lambda: zlib.decompressobj(zlib.MAX_WBITS | 16),
    "bz2": bz2.BZ2Decompressor,
    "lzma": lzma.LZMADecompressor,
}
_PACKED = frozenset({"blosc", "lz4", "zstd", *_STREAMS})
_WIDER, _MORE = 16, 1 << 16
"""By what filters may widen a chunk's numbers while they are packed, and bytes that any file may unpack to."""


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
        self._codec = _outer_codec(array)
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
        if self._codec in _PACKED or claimed > SMALL_BYTES:
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
        with os.fdopen(descriptor, "rb") as opened:
            size = os.fstat(descriptor).st_size
            header = opened.read(_HEADER_BYTES)
            if self._codec == "blosc":
                whole = len(header) >= _BLOSC.size
                unpacked, own = _BLOSC.unpack_from(header) if whole else (0, 0)
                if own != size:
                    told = f"{own} bytes" if whole else "a header"
                    raise DamageError(str(file), f"has {size} bytes, and should have {told}", MEND)
            else:
                unpacked = _told_bytes(self._codec, header)
            most = _WIDER * self._bytes(self._grid) + _MORE
            if unpacked <= most and self._codec in _STREAMS:
                unpacked = self._counted(opened, size, most)
        if unpacked > most:
            told = f"unpacks to {'more than ' if self._codec in _STREAMS else ''}{unpacked:,} bytes"
            raise DamageError(str(file), f"{told}, and its array has {self._bytes(self._grid):,} in a file", MEND)
        return size

    def _counted(self, file: BinaryIO, size: int, most: int) -> int:
        """Return how many bytes a stream unpacks to, counted until it is more than `most`; 0 where it cannot matter."""
        if self._codec in ("zlib", "gzip") and size * _ZLIB_EXPANSION <= max(SMALL_BYTES, most):
            return 0
        file.seek(0)
        found, stream, rest = 0, _STREAMS[self._codec](), b""
        try:
            while found <= most and (piece := rest or file.read(_PIECE)):
                found += len(stream.decompress(piece, _PIECE))
                rest = getattr(stream, "unconsumed_tail", b"")
                while found <= most and not rest and not stream.eof and not getattr(stream, "needs_input", True):
                    found += len(stream.decompress(b"", _PIECE))
                if stream.eof:  # of one part; others may follow
                    rest, stream = stream.unused_data, _STREAMS[self._codec]()
        except (zlib.error, lzma.LZMAError, OSError, EOFError):
            pass  # damage: the library tells it
        return found

    def _bytes(self, shape: tuple[int, ...]) -> int:
        return math.prod(shape) * int(self.dtype.itemsize)


def _told_bytes(codec: str, header: bytes) -> int:
    """Return the bytes to which a file says that it unpacks; 0 where it does not say."""
    if codec == "lz4" and len(header) >= _LZ4.size:
        return int(_LZ4.unpack_from(header)[0])
    if codec != "zstd" or not header.startswith(_ZSTD) or len(header) < 6:
        return 0
    kind = header[4]  # RFC 8878, 3.1.1.1
    is_single = bool(kind & 0x20)
    size = (1 if is_single else 0, 2, 4, 8)[kind >> 6]
    start = 5 + (not is_single) + (0, 1, 2, 4)[kind & 3]
    return int.from_bytes(header[start : start + size], "little") + (256 if size == 2 else 0)


def _outer_codec(array: Any) -> str:
    """What packed the files of an array last."""
    metadata = getattr(array, "metadata", None)
    if metadata is None:  # zarr 2
        return "" if array.compressor is None else str(array.compressor.codec_id)
    noted = metadata.to_dict()
    codec = noted["codecs"][-1] if noted.get("codecs") else noted.get("compressor") or {}
    return str(codec.get("name", codec.get("id", ""))).removeprefix("numcodecs.")
