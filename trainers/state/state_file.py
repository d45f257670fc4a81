"""A state in an HDF5 file: the text of a tree, its arrays, and the index and the seal behind them."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import h5py
import numpy as np

from preprocess.files.writing import new_file
from trainers.state.seal import (
    Damaged,
    Index,
    StoredArray,
    array_in,
    check_text,
    digest_of,
    index_of,
    is_sealed,
    is_whole,
    open_sealed,
    structure_in,
    text_in,
    verify,
    write_seal,
)

_FORMAT = 3
_WITHOUT_INDEX = 2  # an older format: its seal is the digest of all
_UNSEALED = 1  # a still older one: its digest, of the content alone, is inside
_READ = (_UNSEALED, _WITHOUT_INDEX, _FORMAT)
_MOST_ARRAYS = 1 << 17
_CHUNK = 1 << 20
_DEEPEST = 110  # groups within each other: a tree has 100 levels


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


# Files of older versions, which have no index.


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


def _digest_of_unsealed(structure: str, arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.blake2b(structure.encode(), digest_size=32)
    for path in sorted(arrays):
        digest.update(f"{path} {arrays[path].dtype.str} {arrays[path].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[path]).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


# What writers share.


def _digest_of_content(structure: str, places: Mapping[str, StoredArray]) -> str:
    digest = hashlib.blake2b(structure.encode(), digest_size=32)
    for path, place in sorted(places.items()):
        digest.update(f"{path} {place.dtype.str} {place.shape} {place.digest}".encode())
    return digest.hexdigest()


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
