"""HDF5's own part of a converted file, written around samples that lie in it already, and held against its checksums.

The samples are written first, by plain writes at the places where HDF5 will put them: then their number and sizes need
not be known before, a killed conversion leaves nothing that HDF5 has half written, and no byte is copied twice. HDF5
never touches the space of a contiguous data set that is allocated early and not filled.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from preprocess.files.reading import open_file
from preprocess.files.writing import open_in_place
from preprocess.samples.errors import SourceError
from preprocess.samples.layout import Array
from preprocess.sources.checked_files import DamageError, damage_named, existing
from preprocess.sources.hdf5 import (
    FORMAT,
    VERSION,
    WHOLE,
    SplitIndex,
    index_digest,
    read_index,
    refuse_elsewhere,
    try_hdf5,
)
from preprocess.sources.hdf5 import open_file as open_hdf5_file

_ALIGNMENT = 8


@dataclass(frozen=True)
class SplitContent:
    """A split of a file.

    Attributes:
        name: the name of its group.
        samples: name of the data set of samples: bytes (of encoded images) or inputs (of arrays).
        shape, dtype: shape and dtype of that data set: (bytes,) or (n, ...).
        index: the other data sets: offsets (of encoded images), labels, crc32.
        classes: names of the classes, or None.
        attributes: the attributes of its group.
    """

    name: str
    samples: str
    shape: tuple[int, ...]
    dtype: str
    index: Mapping[str, Array]
    classes: list[str] | None
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class Placement:
    """The places at which HDF5 puts the samples of the splits, whatever their sizes.

    Attributes:
        first: where the first split's samples begin, in bytes.
        gap: bytes between the end of one split's, rounded up to a whole number of 8, and the next one's.
    """

    first: int
    gap: int

    def after(self, end: int) -> int:
        """Return where the next split's samples begin."""
        return _aligned(end) + self.gap


class _AroundFile(io.FileIO):
    """A file that seems empty to HDF5, which would else take what it holds for a file of its own, and stays whole.

    It keeps its first write error and goes on as if all were well, as HDF5 cannot close a file whose writes fail.
    """

    error: OSError | None = None
    _end = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return super().seek(self._end + offset) if whence == os.SEEK_END else super().seek(offset, whence)

    def truncate(self, size: int | None = None, /) -> int:
        self._end = self.tell() if size is None else size
        try:
            if self._end > os.fstat(self.fileno()).st_size:  # samples that lie behind are not HDF5's to cut
                super().truncate(self._end)
        except OSError as error:
            self.error = self.error or error
        return self._end

    def write(self, data: Any, /) -> int:
        remaining = memoryview(data).cast("B")
        size = remaining.nbytes
        try:
            while remaining and self.error is None:
                remaining = remaining[super().write(remaining) :]
        except OSError as error:
            self.error = error
        self._end = max(self._end, self.tell())
        return size


def measure_placement(names: Sequence[str], samples: str, rank: int, dtype: str) -> Placement:
    """Find out where this HDF5 library puts the samples of such splits, by making a small file in memory."""
    size = np.dtype(dtype).itemsize
    with _hdf5(io.BytesIO()) as file:
        starts = _add_samples(file, [(name, samples, (1,) * rank, dtype) for name in names])
    gaps = [later - _aligned(earlier + size) for earlier, later in zip(starts, starts[1:])]
    return Placement(starts[0], gaps[0] if gaps else 0)


def write_around(
    path: Path, splits: Sequence[SplitContent], starts: Sequence[int], attributes: Mapping[str, Any]
) -> None:
    """Make a file whose samples lie at `starts` an HDF5 file, and fsync it.

    Raises:
        OSError: it cannot be written.
        RuntimeError: HDF5 expects the samples elsewhere.
    """
    with open_in_place(path) as own, _AroundFile(own.fileno(), "r+", closefd=False) as raw:
        try:
            with _hdf5(raw) as file:
                _write(file, splits, starts, attributes)
        except (OSError, RuntimeError):
            if raw.error is None:
                raise
        if raw.error is not None:
            raise raw.error
        os.fsync(raw.fileno())


def _hdf5(file: IO[bytes] | io.FileIO) -> Any:
    import h5py

    # Through a Python file HDF5 allocates each object by itself, so that places do not depend on sizes.
    return h5py.File(file, "w", alignment_threshold=1, alignment_interval=_ALIGNMENT)


def _write(file: Any, splits: Sequence[SplitContent], starts: Sequence[int], attributes: Mapping[str, Any]) -> None:
    import h5py

    found = _add_samples(file, [(split.name, split.samples, split.shape, split.dtype) for split in splits])
    if found != list(starts):
        raise RuntimeError(f"HDF5 put the samples at {found}, and they were written at {list(starts)}")
    for split in splits:
        group = file[split.name]
        for name, array in split.index.items():
            group.create_dataset(name, data=array)
        if split.classes is not None:
            group.create_dataset("classes", data=split.classes, dtype=h5py.string_dtype())
        for name, value in split.attributes.items():
            group.attrs[name] = value
        group.attrs["digest"] = index_digest(split.name, split.index, split.classes, split.attributes)
    for name, value in {"format": FORMAT, "version": VERSION, **attributes}.items():
        file.attrs[name] = value


def _add_samples(file: Any, splits: Sequence[tuple[str, str, tuple[int, ...], str]]) -> list[int]:
    """Add the groups with their data sets of samples, of which nothing is written; return where these begin."""
    from h5py import h5d, h5p, h5s, h5t

    groups = [file.create_group(name) for name, _, _, _ in splits]
    creation = h5p.create(h5p.DATASET_CREATE)
    creation.set_layout(h5d.CONTIGUOUS)
    creation.set_alloc_time(h5d.ALLOC_TIME_EARLY)
    creation.set_fill_time(h5d.FILL_TIME_NEVER)
    creation.set_obj_track_times(False)
    starts = []
    for group, (_, name, shape, dtype) in zip(groups, splits):
        kind, space = h5t.py_create(np.dtype(dtype), logical=True), h5s.create_simple(shape)
        starts.append(h5d.create(group.id, name.encode(), kind, space, dcpl=creation).get_offset())
    return starts


def _aligned(end: int) -> int:
    return -(-end // _ALIGNMENT) * _ALIGNMENT


@dataclass(frozen=True)
class Verification:
    """The findings in a file.

    Attributes:
        samples: how many were looked at.
        damage: the parts that are not as they were written, in words; empty if the file is whole.
    """

    samples: int
    damage: tuple[str, ...]


def verify(path: str | Path, progress: Callable[[int, int], None] | None = None) -> Verification:
    """Read a file that `convert` wrote from end to end, and hold all of it against its checksums.

    Args:
        path: the file.
        progress: called with (samples looked at, samples that there are), now and then.

    Raises:
        SourceError: it is missing, cannot be opened, or is not of this layout.
        DamageError: what HDF5 needs to find anything in it is damaged.
    """
    indices, damage = _indices(str(path))
    total = sum(len(index) for index in indices)
    seen = 0
    for index in indices:
        with open_file(index.path) as file:
            for sample in range(len(index)):
                damage += _damage(index, sample, file.fileno())
                seen += 1
                if progress is not None and (seen % 256 == 0 or seen == total):
                    progress(seen, total)
    return Verification(seen, tuple(damage))


def _indices(path: str) -> tuple[list[SplitIndex], list[str]]:
    """The indices of all splits that have a whole one, and the mistakes of the others."""
    indices, damage = [], []
    try_hdf5(str(existing(path)))
    with damage_named(path, "it"), closing(open_hdf5_file(path)) as file:
        if file.attrs.get("format") != FORMAT:
            raise SourceError(path, "is not a file that was converted, so it has no checksums", "give one that was")
        refuse_elsewhere(path, file, WHOLE)
        for split in sorted(file):
            try:
                indices.append(read_index(path, file, split))
            except DamageError as error:
                damage.append(str(error))
        if not indices and not damage:
            damage.append(f"{path}: it holds no split")
    return indices, damage


def _damage(index: SplitIndex, sample: int, descriptor: int) -> list[str]:
    start = index.starts.item(sample)
    size = index.starts.item(sample + 1) - start
    content = os.pread(descriptor, size, start)
    if len(content) != size:
        return [f"{index.name(sample)}: has {len(content)} of its {size} bytes in the file"]
    if zlib.crc32(content) != index.crc32[sample]:
        return [f"{index.name(sample)}: its bytes do not match their checksum"]
    return []
