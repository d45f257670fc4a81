"""What stands behind a checkpoint's HDF5 data, so that no torn or flipped byte goes unseen.

An index tells where each array lies in the file, and the digest of its bytes, and the digest of all bytes that belong
to no array. The seal is the digest of the index. So each array is verified by itself, while it is read, and who takes
arrays over from another file takes over their digests. Files of older versions have no index: their seal is the
digest of all bytes before it.

The seal is against damage and not against people: anybody can compute it. So nothing that an index says is believed
before it is checked, and an array is read from the place in this very file that the index names, and not by HDF5,
whose arrays may lie in other files.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from preprocess.files.memory import EXPANSION, SMALL_BYTES, check_claim
from preprocess.files.reading import open_descriptor

MOST_TEXT_BYTES = 32 << 20
"""Of a checkpoint's texts, which are JSON: the index, and the tree that refers to the arrays."""
_MOST_LISTS = 1 << 20  # in such a text, together with its mappings: each takes far more memory than the text
_MOST_DIMENSIONS = 32
_KIND = re.compile(r"[<>|=]?[biufcSV]\d{1,15}")  # of NumPy's types, those whose bytes are no addresses
_BLOCK = 512  # bytes, in which a file's blocks are counted

_OF_INDEX = b"\nfleet index blake2b "
_OF_ALL = b"\nfleet blake2b "
_DIGITS, _LENGTH = 64, 16  # of a digest, and of the index's length, both hexadecimal
_CHUNK = 1 << 20


class Damaged(ValueError):
    """A file's bytes do not match their digests."""


@dataclass(frozen=True)
class StoredArray:
    """Where an array lies in a file, what it is, and the digest of its bytes.

    digest: "" where the file tells none, as those of older versions do not.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    digest: str = ""

    @property
    def size(self) -> int:
        """Return how many bytes it has."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Index:
    """What a file's index tells.

    arrays: by their paths. structure: where the text lies that refers to them, and its bytes. end: of the HDF5 data.
    untold: paths of arrays of which older versions say how many bytes an item has, but not whether it has fields.
    """

    arrays: Mapping[str, StoredArray]
    structure: tuple[int, int]
    end: int
    untold: frozenset[str] = frozenset()

    def as_text(self, others: str) -> bytes:
        """Return it as it stands in the file. others: the digest of what belongs to no array."""
        arrays = {path: [at.dtype.str, at.shape, at.offset, at.digest] for path, at in self.arrays.items()}
        told: dict[str, Any] = {"others": others, "structure": self.structure, "arrays": arrays}
        with_fields = {path: at.dtype for path, at in self.arrays.items() if at.dtype.kind == "V"}
        if with_fields:
            told["fields"] = {path: np.lib.format.dtype_to_descr(dtype) for path, dtype in with_fields.items()}
        return json.dumps(told).encode()


def open_sealed(path: Path) -> io.FileIO:
    """Open a checkpoint's file for reading.

    Raises:
        NotAFile: it is a pipe, a device, a socket or a folder.
        NeedsTooMuchMemory: it is far larger than what the disk holds of it, so that the rest is holes.
        OSError: it cannot be opened.
    """
    file = io.FileIO(open_descriptor(path))
    try:
        found = os.fstat(file.fileno())
        held = found.st_blocks * _BLOCK
        if held and found.st_size > max(SMALL_BYTES, EXPANSION * held):
            check_claim(path, found.st_size, "what it says that it holds", held)
    except BaseException:
        file.close()
        raise
    return file


def digest_of(array: np.ndarray) -> str:
    """Return the digest of an array's bytes."""
    return hashlib.blake2b(_bytes_of(np.ascontiguousarray(array)), digest_size=_DIGITS // 2).hexdigest()


def write_seal(file: io.FileIO, index: Index) -> None:
    """Write the index and the seal behind the HDF5 data of a file that is open for reading and writing."""
    text = index.as_text(_digest_of_others(file, index))
    file.seek(index.end)
    file.write(text + _OF_INDEX + f"{len(text):0{_LENGTH}x} {_digest(text)}".encode())


def index_of(file: io.FileIO) -> Index | None:
    """Return a file's index; None: it has none. Damaged if it, or what belongs to no array, is not as it was written.

    The arrays have yet to be verified. ValueError: somebody sealed what no index says.
    """
    size = file.seek(0, io.SEEK_END)
    ends_with = _read(file, max(0, size - _LENGTH - 1 - _DIGITS - len(_OF_INDEX)), size)
    if not ends_with.startswith(_OF_INDEX):
        return None
    length, digest = ends_with[len(_OF_INDEX) :][:_LENGTH], ends_with[-_DIGITS:]
    try:
        end = size - len(ends_with) - int(length, 16)
    except ValueError as error:
        raise Damaged from error
    if not 0 <= end <= size - len(ends_with):
        raise Damaged
    check_text(size - len(ends_with) - end, "index")
    text = _read(file, end, size - len(ends_with))
    if _digest(text).encode() != digest:
        raise Damaged
    try:
        return _index_in(text, file, end)
    except (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError) as error:
        raise ValueError(f"its index cannot be so: {error}") from error


def structure_in(file: io.FileIO, index: Index) -> str:
    """Return the text that refers to the arrays."""
    return text_in(file, *index.structure)


def text_in(file: io.FileIO, start: int, size: int) -> str:
    """Return the text that refers to the arrays, from its place. ValueError: it is larger than any such text."""
    check_text(size, "tree")
    text = _read(file, start, start + size).decode()
    if text.count("[") + text.count("{") > _MOST_LISTS:
        raise ValueError(f"its tree has more than {_MOST_LISTS:,} lists and mappings")
    return text


def check_text(size: int, what: str) -> None:
    """ValueError if a text of a checkpoint has more bytes than any may have, be it read or written."""
    if size > MOST_TEXT_BYTES:
        text = f"its {what} has {size:,} bytes of text, and a checkpoint's has {MOST_TEXT_BYTES:,} at most"
        raise ValueError(f"{text} (numbers in arrays do not count)")


def array_in(file: io.FileIO, place: StoredArray) -> np.ndarray:
    """Read an array. Damaged if its bytes are not as they were written."""
    array = np.empty(place.shape, place.dtype)
    _verify(file, place, _bytes_of(array))
    return array


def verify(file: io.FileIO, places: Iterable[StoredArray]) -> None:
    """Damaged if the bytes of an array are not as they were written."""
    memory = memoryview(bytearray(_CHUNK))
    for place in places:
        _verify(file, place, memory)


def is_sealed(file: io.FileIO) -> bool:
    """Whether a file that has no index ends with a seal, be it that of these bytes or not."""
    size = file.seek(0, io.SEEK_END)
    return _read(file, max(0, size - len(_OF_ALL) - _DIGITS), size).startswith(_OF_ALL)


def is_whole(path: Path) -> bool:
    """Whether a file is sealed, and every byte of it as it was written."""
    with open_sealed(path) as file:
        try:
            index = index_of(file)
            if index is None:
                return _is_whole_without_index(file)
            verify(file, index.arrays.values())
        except ValueError:
            return False
    return True


def _index_in(text: bytes, file: io.FileIO, end: int) -> Index:
    if text.count(b"[") + text.count(b"{") > _MOST_LISTS:
        raise ValueError(f"its index has more than {_MOST_LISTS:,} lists and mappings")
    told = json.loads(text)
    fields = told.get("fields", {})
    places = {path: _place(fields.get(path), *words) for path, words in told["arrays"].items()}
    start, size = told["structure"]
    if not _are_counts(start, size) or start + size > end:
        raise ValueError("its tree lies where none can")
    untold = frozenset(path for path, place in places.items() if place.dtype.kind == "V" and path not in fields)
    index = Index(places, (start, size), end, untold)
    if _digest_of_others(file, index) != told["others"]:
        raise Damaged
    return index


def _place(fields: Any, dtype: str, shape: list[int], offset: int, digest: str) -> StoredArray:
    """What an index says of an array. ValueError, or another error of Python's, if no array can be so."""
    kind = np.dtype(_descriptor(dtype))
    if fields is not None:
        with_fields = np.lib.format.descr_to_dtype(_descriptor(fields))
        if with_fields.str != kind.str:
            raise ValueError(f"an array of {dtype} has fields that are none of it")
        kind = with_fields
    if not _are_counts(offset, *shape) or len(shape) > _MOST_DIMENSIONS or len(digest) != _DIGITS:
        raise ValueError("an array lies where none can, or has a shape that none has")
    return StoredArray(kind, tuple(shape), offset, digest)


def _descriptor(told: Any) -> Any:
    """What NumPy takes for a type, from JSON: a word, or fields of [name, type] or [name, type, shape]."""
    if isinstance(told, str):
        if _KIND.fullmatch(told) is None:
            raise ValueError(f"{told[:20]!r} is no type of numbers")
        return told
    return [(str(name), _descriptor(kind), *(tuple(each) for each in shape)) for name, kind, *shape in told]


def _are_counts(*values: Any) -> bool:
    return all(type(value) is int and 0 <= value < 2**63 for value in values)


def _is_whole_without_index(file: io.FileIO) -> bool:
    size = file.seek(0, io.SEEK_END) - len(_OF_ALL) - _DIGITS
    if size < 0:
        return False
    digest = hashlib.blake2b(digest_size=_DIGITS // 2)
    _update(digest, file, 0, size)
    return file.read() == _OF_ALL + digest.hexdigest().encode()


def _digest_of_others(file: io.FileIO, index: Index) -> str:
    """The digest of the HDF5 data that belongs to no array."""
    digest = hashlib.blake2b(digest_size=_DIGITS // 2)
    for start, end in _between(index.arrays.values(), index.end):
        _update(digest, file, start, end)
    return digest.hexdigest()


def _between(places: Iterable[StoredArray], end: int) -> Iterator[tuple[int, int]]:
    """What lies before `end` and in none of the places. ValueError if these overlap, or reach beyond it."""
    start = 0
    for place in sorted((place for place in places if place.size), key=lambda place: place.offset):
        if not start <= place.offset <= end:
            raise ValueError("arrays lie where none can")
        yield start, place.offset
        start = place.offset + place.size
    if start > end:
        raise ValueError("an array ends where none can")
    yield start, end


def _verify(file: io.FileIO, place: StoredArray, memory: memoryview) -> None:
    """Read an array into memory, all of it or piece by piece over each other."""
    digest, left, at = hashlib.blake2b(digest_size=_DIGITS // 2), place.size, 0
    file.seek(place.offset)
    while left:
        at = 0 if at == len(memory) else at
        read = file.readinto(memory[at : at + min(left, _CHUNK)])
        if not read:
            raise Damaged
        digest.update(memory[at : at + read])
        left, at = left - read, at + read
    if place.digest and digest.hexdigest() != place.digest:
        raise Damaged


def _update(digest: Any, file: io.FileIO, start: int, end: int) -> None:
    file.seek(start)
    while start < end and (chunk := file.read(min(end - start, _CHUNK))):
        digest.update(chunk)
        start += len(chunk)


def _read(file: io.FileIO, start: int, end: int) -> bytes:
    file.seek(start)
    return b"".join(iter(lambda: file.read(max(0, end - file.tell())), b""))


def _digest(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=_DIGITS // 2).hexdigest()


def _bytes_of(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
