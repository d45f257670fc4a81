"""HDF5 files: those that `preprocess.convert` wrote, and others with one data set of inputs and one of targets.

A converted file has one group a split, `train` and `held_out`. Encoded images lie end to end in `bytes`, uint8; image i
is bytes[offsets[i]:offsets[i + 1]]. Arrays lie in `inputs`, (n, ...). Both are contiguous, so that a sample is one
`pread` at a place that is known: the file is read without HDF5 once it is open.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import weakref
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from preprocess.files.memory import SMALL_BYTES, check_claim
from preprocess.files.reading import open_descriptor
from preprocess.samples.errors import SourceError, spelling_advice
from preprocess.samples.layout import Array, SampleLayout
from preprocess.sources.arrays import ArraySource, PackedArray
from preprocess.sources.checked_files import MEND, DamageError, bounded, damage_named, existing, try_in_time

#: The attributes `format` and `version` of the file.
FORMAT = "preprocess samples"
VERSION = 1


@dataclass(frozen=True)
class SplitIndex:
    """All of a split but its samples.

    Attributes:
        path: the file.
        split: name of the split.
        encoded: whether samples are encoded images.
        layout: the layout of the samples, decoded.
        starts: where each sample begins in the file and where the last one ends, int64 (n + 1,).
        labels: the targets, (n, ...).
        crc32: checksum of each sample's bytes, uint32 (n,).
        classes: names of the classes by their numbers, or None.
    """

    path: str
    split: str
    encoded: bool
    layout: SampleLayout
    starts: Array
    labels: Array
    crc32: Array
    classes: tuple[str, ...] | None

    def __len__(self) -> int:
        return len(self.labels)

    def name(self, sample: int) -> str:
        """Return what a sample is called in messages."""
        return f"{self.path}, {self.split} sample {sample}"


class _Split:
    """Reads samples of a split by `pread`; may be used by processes that were forked after it was opened."""

    encoded: bool

    def __init__(self, index: SplitIndex, verify: bool) -> None:
        self._index, self._verify = index, verify
        self._starts, self._labels = index.starts, index.labels
        self.layout, self.classes = index.layout, index.classes
        self._descriptor = open_descriptor(index.path)
        weakref.finalize(self, os.close, self._descriptor)

    def __len__(self) -> int:
        return len(self._labels)

    def describe(self, index: int) -> str:
        """Return what a sample is called in messages."""
        return self._index.name(index)

    def _content(self, index: int) -> bytes:
        start = self._starts.item(index)
        size = self._starts.item(index + 1) - start
        if size > SMALL_BYTES:
            check_claim(self.describe(index), size)
        content = os.pread(self._descriptor, size, start)
        if len(content) != size:
            raise DamageError(self.describe(index), f"has {len(content)} of its {size} bytes in the file", MEND)
        if self._verify and zlib.crc32(content) != self._index.crc32[index]:
            raise DamageError(self.describe(index), "its bytes do not match their checksum", MEND)
        return content


class EncodedSplit(_Split):
    """A split of encoded images; an input is the bytes of an image file, uint8 (size,)."""

    encoded = True

    def read(self, index: int) -> tuple[Array, Any]:
        return np.frombuffer(self._content(index), np.uint8), self._labels[index]


class ArraySplit(_Split):
    """A split of arrays."""

    encoded = False

    def __init__(self, index: SplitIndex, verify: bool) -> None:
        super().__init__(index, verify)
        self._shape, self._dtype = index.layout.input_shape, np.dtype(index.layout.input_dtype)

    def read(self, index: int) -> tuple[Array, Any]:
        return np.frombuffer(self._content(index), self._dtype).reshape(self._shape), self._labels[index]


def _open_split(path: str, file: Any, split: str, verify: bool) -> EncodedSplit | ArraySplit:
    """Open one split of an open h5py file of this layout.

    Raises:
        SourceError: another version, or no such split.
        DamageError: the index does not match its digest.
    """
    index = read_index(path, file, split)
    return EncodedSplit(index, verify) if index.encoded else ArraySplit(index, verify)


def read_index(path: str, file: Any, split: str) -> SplitIndex:
    """Read all of a split but its samples, and check it against its digest. Raises as `_open_split`."""
    version = file.attrs.get("version")
    if version != VERSION:
        raise SourceError(path, f"has version {version} of the layout, this program reads {VERSION}", "convert anew")
    if split not in file:
        raise SourceError(split, f"{path} has no such split", spelling_advice(str(split), file.keys()))
    with damage_named(path, f"its split {split!r}"):
        return _read_index(path, file[split], split)


def _read_index(path: str, group: Any, split: str) -> SplitIndex:
    arrays = {name: _numbers(path, group[name]) for name in ("offsets", "labels", "crc32") if name in group}
    classes = list(_names(path, group["classes"])) if "classes" in group else None
    attributes = {name: _plain(value) for name, value in group.attrs.items() if name != "digest"}
    if index_digest(split, arrays, classes, attributes) != group.attrs["digest"]:
        raise DamageError(path, f"the index of its split {split!r} does not match its digest", MEND)
    labels = arrays["labels"]
    encoded = "offsets" in arrays
    data = group["bytes" if encoded else "inputs"]
    start = data.id.get_offset()
    if start is None:
        raise DamageError(path, f"the samples of its split {split!r} do not lie in one piece", MEND)
    offsets = arrays["offsets"] if encoded else np.arange(len(labels) + 1, dtype=np.int64) * _item_bytes(data)
    whole = offsets.ndim == 1 and offsets.dtype.kind in "iu" and len(offsets) == len(labels) + 1
    if not whole or offsets[-1] != data.size * data.dtype.itemsize or (offsets[:-1] > offsets[1:]).any() or offsets[0]:
        raise DamageError(path, f"the sizes of its split {split!r} contradict each other", MEND)
    if encoded:
        shape, dtype = (*attributes["image_shape"], attributes["channels"]), "uint8"
    else:
        shape, dtype = data.shape[1:], str(data.dtype)
    target = "int64" if labels.dtype.kind in "iub" else str(labels.dtype)
    layout = SampleLayout(tuple(shape), dtype, labels.shape[1:], target)
    names = None if classes is None else tuple(classes)
    return SplitIndex(path, split, encoded, layout, offsets + start, labels, arrays["crc32"], names)


def _numbers(path: str, data_set: Any) -> Array:
    """Read an array of an index, which lies in the file as it is. Raises NeedsTooMuchMemory."""
    if data_set.dtype.kind not in "iufb":
        raise TypeError(f"{data_set.name!r} is of {data_set.dtype}")
    check_claim(path, data_set.size * data_set.dtype.itemsize, f"its {data_set.name!r}", data_set.id.get_storage_size())
    found: Array = data_set[()]
    return found


def _names(path: str, data_set: Any) -> Iterator[str]:
    """Read the names of classes one by one: many may be said to lie at one place of the file."""
    most, taken = os.stat(path).st_size, 0
    texts = data_set.asstr()
    for number in range(data_set.shape[0]):
        name = str(texts[number])
        taken += len(name)
        if taken > most:
            raise ValueError(f"its names of classes have more characters than the file has bytes, {most}")
        yield name


def index_digest(
    split: str, arrays: Mapping[str, Array], classes: list[str] | None, attributes: Mapping[str, Any]
) -> str:
    """Return the digest of a split's index: name, arrays, classes and attributes (blake2b, hexadecimal)."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([split, classes, attributes], sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _item_bytes(data: Any) -> int:
    return math.prod(data.shape[1:]) * int(data.dtype.itemsize)


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
    try_in_time("HDF5", try_samples, path, **arguments)


def try_samples(told: str) -> None:
    """Open a file with `open_hdf5`'s arguments, as JSON, in a process of its own, and read a little of it."""
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
                return _open_split(str(path), file, split, verify)
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
