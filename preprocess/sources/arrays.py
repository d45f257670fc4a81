"""Samples that lie in arrays: the source behind `numpy`, `idx` and `hdf5`."""

from __future__ import annotations

import gzip
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

from preprocess.files.memory import check_claim
from preprocess.files.reading import open_file
from preprocess.samples.errors import SourceError, spelling_advice
from preprocess.samples.layout import Array, Indices, SampleLayout
from preprocess.sources.checked_files import existing, refusals_named

_ZIP = b"PK"
_AT_ONCE = 64 << 20  # bytes


class ArraySource:
    """Samples i = (inputs[i], targets[i]) of two array-likes of equal length.

    A two-dimensional uint8 input is an image and gets one channel. Integer targets become int64.

    Attributes:
        copies_many: whether `copy` can be called.
    """

    def __init__(self, inputs: Any, targets: Any, what: str) -> None:
        if len(inputs) != len(targets):
            rule = f"has {len(inputs)} inputs and {len(targets)} targets, they must be as many"
            raise SourceError(what, rule, "give the files that belong together")
        self._inputs, self._targets = inputs, targets
        shape, dtype = tuple(inputs.shape[1:]), np.dtype(inputs.dtype)
        self._add_channel = is_plain_image(shape, dtype)
        self.copies_many = all(isinstance(each, (np.ndarray, PackedArray)) for each in (inputs, targets))
        target_dtype = "int64" if np.dtype(targets.dtype).kind in "iub" else str(targets.dtype)
        self.layout = SampleLayout(
            (*shape, 1) if self._add_channel else shape, str(dtype), tuple(targets.shape[1:]), target_dtype
        )

    def __len__(self) -> int:
        return len(self._inputs)

    def block_starts(self) -> Indices | None:
        """Return the first sample of each chunk of a chunked HDF5 data set; None of other arrays."""
        chunks = getattr(self._inputs, "chunks", None)
        return np.arange(0, len(self), chunks[0]) if chunks else None

    def chunk_bytes(self) -> tuple[int, int]:
        """Return the bytes of all chunks, once they are read, and of those that HDF5 keeps; 0 without chunks."""
        if not getattr(self._inputs, "chunks", None):
            return 0, 0
        return int(self._inputs.nbytes), int(self._inputs.id.get_access_plist().get_chunk_cache()[1])

    def read(self, index: int) -> tuple[Array, Any]:
        image = self._inputs[index]
        return (image[..., None] if self._add_channel else image), self._targets[index]

    def copy(self, indices: Indices, inputs: Array, targets: Array) -> None:
        """Write copies of many samples into inputs and targets of the layout, (count, ...) each."""
        images = self._inputs[indices]
        inputs[...] = images[..., None] if self._add_channel else images
        targets[...] = self._targets[indices]


def is_plain_image(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Say whether a sample is an image of (height, width) without channels."""
    return len(shape) == 2 and dtype == np.uint8


def open_numpy(path: str | None = None, inputs: str = "inputs", targets: str = "targets") -> ArraySource:
    """Open NumPy files.

    Args:
        path: an .npz file that holds both arrays; without it, `inputs` and `targets` are paths of .npy files.
        inputs: name in the .npz, or path; shape (n, ...).
        targets: name in the .npz, or path; shape (n, ...).
    """
    if path is None:
        return ArraySource(open_array(inputs), open_array(targets), inputs)
    archive = open_array(path)
    if not isinstance(archive, Archive):
        raise SourceError(path, "is not an .npz archive", "give inputs: and targets: for two .npy files")
    return ArraySource(archive.array(inputs), archive.array(targets), path)


def open_array(path: str) -> Any:
    """Open an .npy file, mapped into memory, or an .npz file, as an `Archive`.

    Raises:
        SourceError: it is missing, or no such file of numbers.
    """
    with _numpy_errors_named(path), open_file(existing(path)) as file:
        if file.read(len(_ZIP)) == _ZIP:
            return Archive(path)
        file.seek(0)
        shape, is_fortran, dtype = npy_header(file)
        if not math.prod(shape):
            return np.empty(shape, dtype)
        return np.memmap(file, dtype, "r", file.tell(), shape, "F" if is_fortran else "C")


class Archive:
    """An .npz file, of which no array is unpacked before its values are asked for.

    Attributes:
        files: the names of its arrays.

    Args:
        path: the file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        with self._opened() as packed:
            self._members = {info.filename.removesuffix(".npy"): info for info in packed.infolist()}
            self._size = os.stat(path).st_size
        self.files = list(self._members)

    def array(self, name: str) -> PackedArray:
        """Return one of its arrays.

        Raises:
            SourceError: there is none of this name, or none of numbers, or it takes more memory than it may.
        """
        if name not in self._members:
            raise SourceError(name, f"{self._path} holds no such array", spelling_advice(name, self.files))
        member = self._members[name]
        with _numpy_errors_named(self._path), self._opened() as packed, packed.open(member) as stream:
            shape, _, dtype = npy_header(stream)
            claimed = math.prod(shape) * dtype.itemsize
            if stream.tell() + claimed != member.file_size:
                raise ValueError(f"{name!r} claims {claimed} bytes, and its member has {member.file_size} in all")
        stored = min(member.compress_size, self._size)
        return PackedArray(self._path, name, shape, dtype, stored, lambda: self._read(member))

    def _read(self, member: zipfile.ZipInfo) -> Array:
        with _numpy_errors_named(self._path), self._opened() as packed, packed.open(member) as stream:
            found: Array = np.lib.format.read_array(stream, allow_pickle=False)
            return found

    @contextmanager
    def _opened(self) -> Iterator[zipfile.ZipFile]:
        with open_file(self._path) as file, zipfile.ZipFile(file) as packed:
            yield packed


class PackedArray:
    """An array that is read into memory when its first value is asked for; at once if it is small.

    So a plan, which asks for shapes, takes no memory for large ones, and damage to small ones is told early.

    Attributes:
        shape, dtype: the array's.

    Args:
        path: the file, for errors.
        name: what the array is called in it, for errors.
        shape, dtype: what it claims.
        stored: bytes that it has in the file.
        read: reads it.

    Raises:
        SourceError: it takes more memory than it may.
    """

    def __init__(
        self,
        path: str,
        name: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        stored: int | None,
        read: Callable[[], Array],
    ) -> None:
        self.shape, self.dtype, self._read = shape, dtype, read
        self._array: Array | None = None
        claimed = math.prod(shape) * dtype.itemsize
        with refusals_named():
            check_claim(path, claimed, name and f"its {name!r}", stored)
        if claimed <= _AT_ONCE:
            self.whole()

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 0

    def __getitem__(self, places: Any) -> Any:
        return (self.whole() if self._array is None else self._array)[places]

    def whole(self) -> Array:
        """Return all of it."""
        if self._array is None:
            self._array = self._read()
        return self._array


def npy_header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of an .npy file: shape, whether it is in Fortran's order, dtype. ValueError: it is none."""
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"it is of the version {version}")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("it holds objects, and to read them would run code")
    if any(side < 0 for side in shape):
        raise ValueError(f"it claims the shape {shape}")
    return shape, is_fortran, dtype


@contextmanager
def _numpy_errors_named(path: str) -> Iterator[None]:
    """Turn what NumPy and zip raise on a damaged file into SourceError."""
    try:
        with refusals_named():
            yield
    except SourceError:
        raise
    except Exception as cause:  # zip's unpackers raise nearly anything
        rule = f"NumPy cannot read it ({' '.join(str(cause).split())[:300]})"
        raise SourceError(path, rule, "give an .npy or .npz file without objects") from cause


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
