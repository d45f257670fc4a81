"""HDF5 files: those that `preprocess.convert` wrote, and others with one data set of inputs and one of targets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from preprocess.files.memory import check_claim
from preprocess.samples.errors import SourceError, spelling_advice
from preprocess.samples.layout import Array
from preprocess.sources.arrays import ArraySource, PackedArray, existing
from preprocess.sources.damage import damage_named
from preprocess.sources.hdf5_layout import FORMAT, ArraySplit, EncodedSplit, open_split
from preprocess.sources.trial import bounded, try_in_time

_CHUNK_SLOTS = 10007  # a prime: HDF5 keeps one chunk of all whose numbers are equal modulo this

_PIECE_BYTES = 16 << 20  # of targets, that are read at once

WHOLE = "a converted file holds all of its data: convert it anew"


def open_hdf5(
    path: str,
    split: str = "train",
    inputs: str = "inputs",
    targets: str = "targets",
    verify: bool = False,
    other_files: bool = False,
    cache: float = 1,
) -> ArraySource | EncodedSplit | ArraySplit:
    """Open an HDF5 file for reading.

    Args:
        path: the file.
        split: the split of a converted file: train or held_out.
        inputs: in any other file, the name of the data set of inputs, (n, ...).
        targets: in any other file, the name of the data set of targets, (n, ...); it is read into memory.
        verify: check each sample's checksum as it is read, in a converted file.
        other_files: in any other file, whether its data sets may lie in further files, to which it points.
        cache: in any other file, MiB of chunks that each process keeps.

    Raises:
        SourceError: the file is missing, damaged or of another layout, or an argument does not fit it.
    """
    if isinstance(cache, bool) or not isinstance(cache, (int, float)) or not 0 <= cache < 2**20:
        raise SourceError(cache, "cache is MiB of chunks that are kept", "write cache: 64")
    arguments = {"split": split, "inputs": inputs, "targets": targets, "verify": verify, "other_files": other_files}
    try_hdf5(str(existing(path)), **arguments, cache=cache)
    return _opened(path, split, inputs, targets, verify, other_files, cache)


def try_hdf5(path: str, **arguments: Any) -> None:
    """Read a little of an HDF5 file in another process, see `try_in_time`; arguments: those of `open_hdf5`."""
    try_in_time("HDF5", __name__, path, **arguments)


def try_as_told(told: str) -> None:
    """In a process of its own: open a file with `open_hdf5`'s arguments, as JSON, and read a little of it."""
    bounded(lambda **given: _opened(**given, is_trial=True), told)


def _opened(
    path: str,
    split: str = "train",
    inputs: str = "inputs",
    targets: str = "targets",
    verify: bool = False,
    other_files: bool = False,
    cache: float = 1,
    is_trial: bool = False,
) -> ArraySource | EncodedSplit | ArraySplit:
    file = open_file(path, cache)
    with damage_named(str(path), "it"):
        if file.attrs.get("format") == FORMAT:
            with file:
                refuse_elsewhere(path, file, WHOLE)
                return open_split(str(path), file, split, verify)
    for given, what in ((split != "train", "split"), (verify, "verify")):
        if given:
            rule = f"{what} is for converted files, and this is another HDF5 file"
            raise SourceError(path, rule, f"leave out {what}, or convert the data: fleet convert SOURCE {path}")
    with damage_named(str(path), "it"):
        if not other_files:
            mend = "set other_files: true if you trust it with any file that you can read"
            refuse_elsewhere(path, file, mend, inputs, targets)
        return _open_foreign(path, file, inputs, targets, is_trial)


def open_file(path: str, cache: float = 1) -> Any:
    """Open an HDF5 file with h5py, which keeps so many MiB of each data set's chunks.

    Raises:
        SourceError: it is missing or cannot be read.
    """
    import h5py  # only those who read HDF5 pay for the import

    try:
        # A file that nobody writes needs no lock, and some parallel file systems have none.
        kept = {"rdcc_nbytes": int(cache * 2**20), "rdcc_nslots": _CHUNK_SLOTS}
        return h5py.File(existing(path), "r", locking=False, **kept)
    except OSError as cause:
        rule = f"is not a readable HDF5 file ({cause})"
        raise SourceError(path, rule, "give one that was converted, or holds inputs and targets") from cause


def refuse_elsewhere(path: str, file: Any, mend: str, *names: str) -> None:
    """Refuse a file with links to other files, or of which one of these data sets, by default any, lies in another.

    Raises:
        SourceError: it names the first such thing.
    """
    import h5py

    links: dict[str, int] = {}
    file.id.links.visit(lambda name, link: links.update({name.decode(errors="replace"): link.type}), info=True)
    inside = (h5py.h5l.TYPE_HARD, h5py.h5l.TYPE_SOFT)
    elsewhere = [name for name, kind in links.items() if kind not in inside]
    for name in () if elsewhere else names or links:  # no link leads out of the file here
        item = file.get(name)
        if isinstance(item, h5py.Dataset) and (item.external or item.is_virtual):
            elsewhere.append(name)
    if elsewhere:
        raise SourceError(path, f"its {elsewhere[0]!r} lies in another file, to which it points", mend)


def _open_foreign(path: str, file: Any, inputs: str, targets: str, is_trial: bool) -> ArraySource:
    import h5py

    for name in (inputs, targets):
        if not isinstance(file.get(name), h5py.Dataset):
            raise SourceError(name, f"{path} holds no such data set", spelling_advice(name, file.keys()))
        check_numbers(path, file[name])
    check_rows(path, file[inputs], 1)
    numbers = file[targets]
    if is_trial:  # which need not keep them, and may not take much memory
        for _ in _pieces(numbers):
            pass
        return ArraySource(file[inputs], numbers, path)
    stored = numbers.id.get_storage_size()
    return ArraySource(
        file[inputs], PackedArray(path, targets, numbers.shape, numbers.dtype, stored, lambda: _whole(numbers)), path
    )


def check_numbers(path: str, data_set: Any) -> None:
    """Check that a data set has numbers along a first axis.

    Raises:
        SourceError: it has texts, references or structures, or a single value.
    """
    if data_set.shape is None or not data_set.shape:
        raise SourceError(data_set.name, f"{path} has no samples in it, which lie along the first axis", "name another")
    if data_set.dtype.kind not in "iufb":
        raise SourceError(data_set.name, f"{path} has {data_set.dtype} in it, and not numbers", "name another")


def check_rows(path: str, data_set: Any, rows: int) -> None:
    """Check what reading so many rows at once takes, and the chunks in which they lie.

    Raises:
        NeedsTooMuchMemory: more than the file can hold, or than may be taken.
    """
    stored = data_set.id.get_storage_size()
    row = math.prod(data_set.shape[1:]) * data_set.dtype.itemsize
    check_claim(path, min(rows, data_set.shape[0]) * row, f"a part of {data_set.name!r}", stored)
    if data_set.chunks:
        check_claim(path, math.prod(data_set.chunks) * data_set.dtype.itemsize, f"a chunk of {data_set.name!r}", stored)


def _whole(data_set: Any) -> Array:
    found = np.empty(data_set.shape, data_set.dtype)
    place = 0
    for piece in _pieces(data_set):
        found[place : place + len(piece)] = piece
        place += len(piece)
    return found


def _pieces(data_set: Any) -> Iterator[Array]:
    """Read a data set piece by piece, along its first axis: whole chunks, and as many as a piece may have."""
    check_rows(data_set.file.filename, data_set, 1)
    row = max(1, math.prod(data_set.shape[1:]) * data_set.dtype.itemsize)
    step = data_set.chunks[0] if data_set.chunks else 1
    rows = max(1, _PIECE_BYTES // (row * step)) * step
    for start in range(0, data_set.shape[0], rows):
        yield data_set[start : start + rows]
