"""IDX files, the format of MNIST and its relatives, gzipped or not."""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from typing import BinaryIO

import numpy as np

from preprocess.files.reading import open_file
from preprocess.samples.errors import SourceError
from preprocess.samples.layout import Array
from preprocess.sources.arrays import ArraySource, PackedArray, existing

_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_GZIP = b"\x1f\x8b"


def open_idx(images: str, labels: str) -> ArraySource:
    """Open an IDX file of images, (n, height, width), and one of labels, (n,)."""
    return ArraySource(idx_array(images), idx_array(labels), images)


def read_idx(path: str) -> Array:
    """Read one IDX file into memory, in this machine's byte order. Raises as `idx_array`."""
    return idx_array(path).whole()


def idx_array(path: str) -> PackedArray:
    """Open one IDX file; its values have this machine's byte order.

    The format: two zero bytes, a byte for the dtype, a byte for the number of dimensions, the dimensions
    as big-endian 32-bit integers, the values.

    Raises:
        SourceError: no such file, or not an IDX file.
    """
    with open_file(existing(path)) as file:
        size, is_packed = os.fstat(file.fileno()).st_size, file.read(2) == _GZIP
        file.seek(0)
        shape, dtype, start = _header(_unpacked(file) if is_packed else file, path)
    if not is_packed and size - start != math.prod(shape) * dtype.itemsize:
        raise _not_idx(path, f"claims the shape {shape}, but holds {size - start} bytes of values")
    native = dtype.newbyteorder("=")
    return PackedArray(path, "", shape, native, size, lambda: _values(path, shape, dtype, start))


def _header(file: BinaryIO, path: str) -> tuple[tuple[int, ...], np.dtype[np.generic], int]:
    """The shape, the dtype in the file, and where the values begin."""
    try:
        head = file.read(4)
        if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _DTYPES:
            raise _not_idx(path, f"starts with the bytes {head.hex(' ') or 'none'}")
        sides = file.read(4 * head[3])
    except (OSError, EOFError, zlib.error) as cause:
        raise _does_not_unpack(path, cause) from cause
    if head[3] == 0 or len(sides) < 4 * head[3]:
        raise _not_idx(path, f"claims {head[3]} dimensions in {4 + len(sides)} bytes")
    return struct.unpack(f">{head[3]}I", sides), np.dtype(_DTYPES[head[2]]), 4 + len(sides)


def _values(path: str, shape: tuple[int, ...], dtype: np.dtype[np.generic], start: int) -> Array:
    with open_file(existing(path)) as raw:
        is_packed = raw.read(2) == _GZIP
        raw.seek(0)
        file = _unpacked(raw) if is_packed else raw
        values = np.empty(math.prod(shape), dtype)
        place, left = 0, memoryview(values.view(np.uint8)).cast("B")  # type: ignore[arg-type]
        try:
            file.read(start)
            while place < len(left) and (count := file.readinto(left[place : place + (1 << 20)])):  # type: ignore[attr-defined]
                place += count
            more = len(file.read(1))
        except (OSError, EOFError, zlib.error) as cause:
            raise _does_not_unpack(path, cause) from cause
    if place != len(left) or more:
        raise _not_idx(path, f"claims the shape {shape}, but holds {'more than ' * more}{place} bytes of values")
    swapped = values if dtype.isnative or dtype.itemsize == 1 else values.byteswap(inplace=True)
    return swapped.view(dtype.newbyteorder("=")).reshape(shape)


def _unpacked(file: BinaryIO) -> BinaryIO:
    return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]


def _does_not_unpack(path: str, cause: Exception) -> SourceError:
    return _not_idx(path, f"is a gzip file that does not unpack ({cause})")


def _not_idx(path: str, why: str) -> SourceError:
    return SourceError(path, f"is not an IDX file: it {why}", "give a file such as train-images-idx3-ubyte.gz")
