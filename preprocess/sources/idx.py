"""IDX files, the format of MNIST and its relatives, gzipped or not."""

from __future__ import annotations

import gzip
import math
import struct
import zlib

import numpy as np

from preprocess.samples.errors import SourceError
from preprocess.samples.layout import Array
from preprocess.sources.arrays import ArraySource, existing


def open_idx(images: str, labels: str) -> ArraySource:
    """Open an IDX file of images, (n, height, width), and one of labels, (n,)."""
    return ArraySource(read_idx(images), read_idx(labels), images)


def read_idx(path: str) -> Array:
    """Read one IDX file into memory, in this machine's byte order.

    The format: two zero bytes, a byte for the dtype, a byte for the number of dimensions, the dimensions
    as big-endian 32-bit integers, the values.

    Raises:
        SourceError: no such file, or not an IDX file.
    """
    content = _content(path)
    dtypes = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in dtypes:
        raise _not_idx(path, f"starts with the bytes {content[:4].hex(' ') or 'none'}")
    dimensions = content[3]
    start = 4 + 4 * dimensions
    if dimensions == 0 or len(content) < start:
        raise _not_idx(path, f"claims {dimensions} dimensions in {len(content)} bytes")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    dtype = np.dtype(dtypes[content[2]])
    if len(content) - start != math.prod(shape) * dtype.itemsize:
        raise _not_idx(path, f"claims the shape {shape}, but holds {len(content) - start} bytes of values")
    return np.frombuffer(content, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def _content(path: str) -> bytes:
    raw = existing(path).read_bytes()
    if raw[:2] != b"\x1f\x8b":
        return raw
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as cause:
        raise _not_idx(path, f"is a gzip file that does not unpack ({cause})") from cause


def _not_idx(path: str, why: str) -> SourceError:
    return SourceError(path, f"is not an IDX file: it {why}", "give a file such as train-images-idx3-ubyte.gz")
