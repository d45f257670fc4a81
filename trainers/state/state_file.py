"""A state in an HDF5 file: the text of a tree, its arrays, and the index and the seal behind them.

The index tells where each array lies in the file, and the digest of its bytes, and the digest of all bytes that belong
to no array. The seal is the digest of the index. So each array is verified by itself, while it is read, and who takes
arrays over from another file takes over their digests: no torn or flipped byte goes unseen. Files of older versions
have no index: their seal is the digest of all bytes before it.

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
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import h5py
import numpy as np

from preprocess.files.memory import EXPANSION, SMALL_BYTES, check_claim
from preprocess.files.reading import open_descriptor
from preprocess.files.writing import new_file

_FORMAT = 3


_WITHOUT_INDEX = 2  # an older format: its seal is the digest of all


_UNSEALED = 1  # a still older one: its digest, of the content alone, is inside


_READ = (_UNSEALED, _WITHOUT_INDEX, _FORMAT)


_MOST_ARRAYS = 1 << 17


_DEEPEST = 110  # groups within each other: a tree has 100 levels


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


class UnknownFormat(ValueError):
    """A file is of another version."""


@dataclass(frozen=True)
class Outline:
    """What a file tells without its arrays being read: the digest of its content, and its arrays by their paths.

    digest: "" where an older file has none.
    """

    digest: str
    arrays: Mapping[str, StoredArray]


def write_state(path: Path, structure: str, arrays: Mapping[str, np.ndarray]) -> str:
    """Write a state into a new file, and return the digest of its content; it is on the disk when this returns.

    FileExistsError: something bears that name. Other OSErrors: it cannot be written.
    """
    check_text(len(structure), "tree")
    with RecordingFile(new_file(path), "r+") as file:
        with hdf5_in(file, "w") as hdf5:
            hdf5.attrs["format"] = _FORMAT
            places = _put_arrays(hdf5.create_group("state"), arrays)
            digest, text = _put_structure(hdf5, structure, places)
        _seal(file, places, text)
        os.fsync(file.fileno())
    return digest


def copy_state(
    path: Path, source: Path, structure: str, kept: Collection[str], arrays: Mapping[str, np.ndarray]
) -> str:
    """As `write_state`, with the arrays `kept` taken over from another file. Damaged if they are not as written."""
    check_text(len(structure), "tree")
    with open_sealed(source) as other, RecordingFile(new_file(path), "r+") as file:
        index = index_of(other)
        if index is None:
            raise Damaged
        _copy(other, file, index.end)
        places = {name: index.arrays[name] for name in kept}
        with hdf5_in(file, "r+") as hdf5:
            gone = index.arrays.keys() - kept
            _check_groups(hdf5, [*gone, *arrays])
            for name in gone:
                del hdf5["state"][name.lstrip("/")]
            places |= _put_arrays(hdf5["state"], arrays)
            del hdf5["structure"], hdf5.attrs["digest"]
            digest, text = _put_structure(hdf5, structure, places)
        _seal(file, places, text)
        verify(file, (places[name] for name in kept))
        os.fsync(file.fileno())
    return digest


def _check_groups(hdf5: Any, names: Iterable[str]) -> None:
    """ValueError unless the groups in which these arrays are deleted or made are all in this file."""
    groups = {above for name in names for above in PurePosixPath(f"/state{name}").parents}
    new: set[PurePosixPath] = set()
    for group in sorted(groups - {PurePosixPath("/")}, key=lambda path: len(path.parts)):
        path = bytes(group.relative_to("/"))
        if group.parent in new or not hdf5.id.links.exists(path):
            new.add(group)
        elif hdf5.id.links.get_info(path).type != h5py.h5l.TYPE_HARD:
            raise ValueError(f"{group} points elsewhere, which no checkpoint does")


def _put_arrays(state: Any, arrays: Mapping[str, np.ndarray]) -> dict[str, StoredArray]:
    """Write arrays; return where they lie."""
    places = {}
    for name, array in arrays.items():
        dataset = state.create_dataset(name.lstrip("/"), data=array)
        places[name] = StoredArray(array.dtype, array.shape, dataset.id.get_offset() or 0, digest_of(array))
    return places


def _put_structure(hdf5: Any, structure: str, places: Mapping[str, StoredArray]) -> tuple[str, tuple[int, int]]:
    """Write the text and the digest of all; return these: the digest, and where the text lies."""
    text = np.frombuffer(structure.encode(), np.uint8)
    dataset = hdf5.create_dataset("structure", data=text)
    digest = hdf5.attrs["digest"] = _digest_of_content(structure, places)
    return digest, (dataset.id.get_offset(), text.size)


def _seal(file: RecordingFile, places: Mapping[str, StoredArray], structure: tuple[int, int]) -> None:
    write_seal(file, Index(places, structure, file.seek(0, io.SEEK_END)))
    file.tell_error()


def _copy(source: io.FileIO, file: RecordingFile, size: int) -> None:
    """Copy the first bytes of a file into an empty one, which the file system may do by itself."""
    done = 0
    try:
        while done < size and (copied := os.copy_file_range(source.fileno(), file.fileno(), size - done, done, done)):
            done += copied
    except (AttributeError, OSError):  # some systems, and file systems, cannot
        done = 0
    if done < size:
        source.seek(0)
        file.seek(0)
        while done < size and (chunk := source.read(min(_CHUNK, size - done))):
            done += file.write(chunk)
        file.truncate(size)
        file.tell_error()


class RecordingFile(io.FileIO):
    """A file for HDF5 that keeps the first error of what changes it and goes on as if all were well.

    HDF5 cannot close a file that it cannot change; so the error waits until HDF5 is done, and no file descriptor leaks.
    """

    error: OSError | None = None

    def write(self, data: Any) -> int:
        remaining = memoryview(data).cast("B")
        size = remaining.nbytes
        try:
            while remaining and self.error is None:
                remaining = remaining[super().write(remaining) :]
        except OSError as error:
            self.error = error
        return size

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size) if self.error is None else size or 0
        except OSError as error:
            self.error = error
            return size or 0

    def tell_error(self) -> None:
        """Raise the first error, if there was one."""
        if self.error is not None:
            raise self.error


@contextmanager
def hdf5_in(file: RecordingFile, mode: str) -> Iterator[Any]:
    """HDF5 in a file, to be read and written; the file's first error is raised once HDF5 is done with it."""
    try:
        with h5py.File(file, mode) as hdf5:
            yield hdf5
    except (OSError, RuntimeError):
        if file.error is None:
            raise
    file.tell_error()


def read_state(path: Path) -> tuple[str, dict[str, np.ndarray]]:
    """Return a file's text and arrays, every byte of which has been verified.

    Damaged if one is not as it was written, UnknownFormat if the file is of another version; other errors of
    Python's and of HDF5's if it is none, or none that any version would write.
    """
    with open_sealed(path) as file:
        index = index_of(file)
        if index is None:
            return _read_without_index(file, path)
        places = _with_fields(file, index)
        return structure_in(file, index), {name: array_in(file, place) for name, place in places.items()}


def read_outline(path: Path) -> Outline:
    """Return what a file tells of its arrays, which are not verified. Errors as of `read_state`."""
    with open_sealed(path) as file:
        index = index_of(file)
        if index is not None:
            return Outline(_digest_of_content(structure_in(file, index), index.arrays), index.arrays)
        old = _old_file(file)
        return Outline(old.digest, old.arrays)


def _with_fields(file: io.FileIO, index: Index) -> Mapping[str, StoredArray]:
    """The places of an index's arrays, each with the fields of its type, which only HDF5 knows in older files."""
    if not index.untold:
        return index.arrays
    with h5py.File(file, "r") as hdf5:
        told = _arrays_in(hdf5, index.end)
    places = dict(index.arrays)
    for path in index.untold:
        place, found = places[path], told[f"/state{path}"]
        if (found.offset, found.shape, found.dtype.str) != (place.offset, place.shape, place.dtype.str):
            raise ValueError(f"{path} lies elsewhere than its index says")
        places[path] = replace(place, dtype=found.dtype)
    return places


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


def _digest_of_content(structure: str, places: Mapping[str, StoredArray]) -> str:
    digest = hashlib.blake2b(structure.encode(), digest_size=32)
    for path, place in sorted(places.items()):
        digest.update(f"{path} {place.dtype.str} {place.shape} {place.digest}".encode())
    return digest.hexdigest()


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


@dataclass(frozen=True)
class _OldFile:
    """What HDF5 tells of such a file; none of its arrays has been read."""

    kind: int
    digest: str
    structure: StoredArray
    arrays: Mapping[str, StoredArray]


def _read_without_index(file: io.FileIO, path: Path) -> tuple[str, dict[str, np.ndarray]]:
    sealed = is_sealed(file)
    if sealed and not is_whole(path):
        raise Damaged
    old = _old_file(file)
    structure = text_in(file, old.structure.offset, old.structure.size)
    arrays = {name: array_in(file, place) for name, place in old.arrays.items()}
    if not sealed and (old.kind != _UNSEALED or _digest_of_unsealed(structure, arrays) != old.digest):
        raise Damaged
    return structure, arrays


def is_sealed(file: io.FileIO) -> bool:
    """Whether a file that has no index ends with a seal, be it that of these bytes or not."""
    size = file.seek(0, io.SEEK_END)
    return _read(file, max(0, size - len(_OF_ALL) - _DIGITS), size).startswith(_OF_ALL)


def _is_whole_without_index(file: io.FileIO) -> bool:
    size = file.seek(0, io.SEEK_END) - len(_OF_ALL) - _DIGITS
    if size < 0:
        return False
    digest = hashlib.blake2b(digest_size=_DIGITS // 2)
    _update(digest, file, 0, size)
    return file.read() == _OF_ALL + digest.hexdigest().encode()


def _digest_of_unsealed(structure: str, arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.blake2b(structure.encode(), digest_size=32)
    for path in sorted(arrays):
        digest.update(f"{path} {arrays[path].dtype.str} {arrays[path].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[path]).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _old_file(file: io.FileIO) -> _OldFile:
    with h5py.File(file, "r") as hdf5:
        kind = int(_attribute(hdf5, "format", "iu"))
        if kind not in _READ:
            raise UnknownFormat(f"has format {kind}, this version reads {', '.join(map(str, _READ))}")
        arrays = _arrays_in(hdf5, os.fstat(file.fileno()).st_size)
        within = {name.removeprefix("/state"): at for name, at in arrays.items() if name.startswith("/state/")}
        digest = str(_attribute(hdf5, "digest", "OS")) if "digest" in hdf5.attrs else ""
        return _OldFile(kind, digest, arrays["/structure"], within)


def _attribute(hdf5: Any, name: str, kinds: str) -> Any:
    """The value of an attribute that is one number or word. ValueError: it is something else."""
    told = hdf5.attrs.get_id(name)
    if told.shape != () or told.dtype.kind not in kinds:
        raise ValueError(f"its {name} is no single value")
    return hdf5.attrs[name]


def _arrays_in(hdf5: Any, size: int) -> dict[str, StoredArray]:
    """Where the arrays of an HDF5 file lie in its first `size` bytes, by their paths; nothing of them is read.

    ValueError if one lies in another file, or is stored as no checkpoint stores it: packed, in pieces, or as
    addresses; if together they are larger than the file; or if something has two names.
    """
    found: dict[str, StoredArray] = {}
    seen: set[int] = set()
    left = size
    waiting = [("", hdf5.id)]
    while waiting:
        above, group = waiting.pop()
        for name, kind in _links_of(group):
            path = f"{above}/{name.decode(errors='replace')}"
            if kind != h5py.h5l.TYPE_HARD:
                raise ValueError(f"{path} points elsewhere, which no checkpoint does")
            item = h5py.h5o.open(group, name)
            address = h5py.h5o.get_info(item).addr
            if address in seen or len(seen) >= _MOST_ARRAYS or path.count("/") > _DEEPEST:
                raise ValueError(f"{path[:60]} is one name too many, or nested too deep")
            seen.add(address)
            if isinstance(item, h5py.h5g.GroupID):
                waiting.append((path, item))
                continue
            found[path] = _place_of(item, path)
            left -= found[path].size
            if left < 0 or found[path].offset + found[path].size > size:
                raise ValueError(f"{path} is larger than the file, or lies beyond its end")
    return found


def _links_of(group: Any) -> list[tuple[bytes, int]]:
    """The names in a group, each with the kind of its link; none is followed."""
    found: list[tuple[bytes, int]] = []
    group.links.iterate(lambda name, link: found.append((name, link.type)), info=True)
    return found


def _place_of(dataset: Any, path: str) -> StoredArray:
    if not isinstance(dataset, h5py.h5d.DatasetID):
        raise ValueError(f"{path} is no array")
    stored, dtype = dataset.get_create_plist(), dataset.dtype
    if stored.get_external_count() or stored.get_layout() == h5py.h5d.VIRTUAL:
        raise ValueError(f"{path} points elsewhere, which no checkpoint does")
    if stored.get_layout() != h5py.h5d.CONTIGUOUS or stored.get_nfilters() or dtype.hasobject:
        raise ValueError(f"{path} is packed, in pieces or made of addresses, as no array of a checkpoint is")
    place = StoredArray(dtype, dataset.shape or (), dataset.get_offset() or 0)
    if dataset.shape is None or (place.size and not place.offset):
        raise ValueError(f"{path} has no bytes in the file")
    return place
