"""A state in an HDF5 file: the text of a tree, its arrays, and the index and the seal behind them."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from trainers.state.seal import (
    Damaged,
    Index,
    StoredArray,
    array_in,
    digest_of,
    index_of,
    is_sealed,
    is_whole,
    structure_in,
    verify,
    write_seal,
)

_FORMAT = 3
_WITHOUT_INDEX = 2  # an older format: its seal is the digest of all
_UNSEALED = 1  # a still older one: its digest, of the content alone, is inside
_READ = (_UNSEALED, _WITHOUT_INDEX, _FORMAT)


class UnknownFormat(ValueError):
    """A file is of another version."""


def write_state(path: Path, structure: str, arrays: Mapping[str, np.ndarray]) -> str:
    """Write a state, and return the digest of its content; it is on the disk when this returns. OSError: it cannot."""
    with _RecordingFile(path, "w+") as file:
        with _hdf5(file, "w") as hdf5:
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
    with io.FileIO(source) as other, _RecordingFile(path, "w+") as file:
        index = index_of(other)
        if index is None:
            raise Damaged
        _copy(other, file, index.end)
        places = {name: index.arrays[name] for name in kept}
        with _hdf5(file, "r+") as hdf5:
            for name in index.arrays.keys() - kept:
                del hdf5["state"][name.lstrip("/")]
            places |= _put_arrays(hdf5["state"], arrays)
            del hdf5["structure"], hdf5.attrs["digest"]
            digest, text = _put_structure(hdf5, structure, places)
        _seal(file, places, text)
        verify(file, (places[name] for name in kept))
        os.fsync(file.fileno())
    return digest


def read_state(path: Path) -> tuple[str, dict[str, np.ndarray]]:
    """Return a file's text and arrays, every byte of which has been verified.

    Damaged if one is not as it was written, UnknownFormat if the file is of another version; other errors of
    Python's and of HDF5's if it is none, or none that any version would write.
    """
    with io.FileIO(path) as file:
        index = index_of(file)
        if index is not None:
            arrays = {name: _read_array(file, name, place) for name, place in index.arrays.items()}
            return structure_in(file, index), arrays
        sealed = is_sealed(file)
    if sealed and not is_whole(path):
        raise Damaged
    return _read_without_index(path, sealed)


def _read_array(file: io.FileIO, name: str, place: StoredArray) -> np.ndarray:
    array = array_in(file, place)
    if array.dtype.kind != "V":
        return array
    with h5py.File(file, "r") as hdf5:  # which knows the fields
        return np.asarray(hdf5["state"][name.lstrip("/")][()])


def _read_without_index(path: Path, sealed: bool) -> tuple[str, dict[str, np.ndarray]]:
    with h5py.File(path, "r") as hdf5:
        _refuse_elsewhere(hdf5)
        kind = int(hdf5.attrs["format"])
        if kind not in _READ:
            raise UnknownFormat(f"has format {kind}, this version reads {', '.join(map(str, _READ))}")
        structure = bytes(hdf5["structure"][()]).decode()
        arrays = _read_arrays(hdf5["state"])
        if not sealed and (kind != _UNSEALED or _digest_of_unsealed(structure, arrays) != hdf5.attrs["digest"]):
            raise Damaged
    return structure, arrays


def _refuse_elsewhere(file: Any) -> None:
    """Raise ValueError if part of an HDF5 file lies elsewhere, of which its seal says nothing."""
    links: dict[bytes, int] = {}
    file.id.links.visit(lambda name, link: links.update({name: link.type}), info=True)
    for name, kind in links.items():
        item = file[name] if kind == h5py.h5l.TYPE_HARD else None
        if item is None or (isinstance(item, h5py.Dataset) and (item.external or item.is_virtual)):
            raise ValueError(f"{name.decode(errors='replace')} points elsewhere, which no checkpoint does")


def _read_arrays(state: Any) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            arrays[f"/{name}"] = np.asarray(item[()])

    state.visititems(visit)
    return arrays


def _digest_of_unsealed(structure: str, arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.blake2b(structure.encode(), digest_size=32)
    for path in sorted(arrays):
        digest.update(f"{path} {arrays[path].dtype.str} {arrays[path].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[path]).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _digest_of_content(structure: str, places: Mapping[str, StoredArray]) -> str:
    digest = hashlib.blake2b(structure.encode(), digest_size=32)
    for path, place in sorted(places.items()):
        digest.update(f"{path} {place.dtype} {place.shape} {place.digest}".encode())
    return digest.hexdigest()


class _RecordingFile(io.FileIO):
    """A file that keeps the first error of what changes it and goes on as if all were well.

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
def _hdf5(file: _RecordingFile, mode: str) -> Iterator[Any]:
    """HDF5 in a file; the file's first error is raised once HDF5 is done with it."""
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
        places[name] = StoredArray(array.dtype.str, array.shape, dataset.id.get_offset() or 0, digest_of(array))
    return places


def _put_structure(hdf5: Any, structure: str, places: Mapping[str, StoredArray]) -> tuple[str, tuple[int, int]]:
    """Write the text and the digest of all; return these: the digest, and where the text lies."""
    text = np.frombuffer(structure.encode(), np.uint8)
    dataset = hdf5.create_dataset("structure", data=text)
    digest = hdf5.attrs["digest"] = _digest_of_content(structure, places)
    return digest, (dataset.id.get_offset(), text.size)


def _seal(file: _RecordingFile, places: Mapping[str, StoredArray], structure: tuple[int, int]) -> None:
    write_seal(file, Index(places, structure, file.seek(0, io.SEEK_END)))
    file.tell_error()


def _copy(source: io.FileIO, file: _RecordingFile, size: int) -> None:
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
        shutil.copyfileobj(source, file, 1 << 20)
        file.truncate(size)
        file.tell_error()
