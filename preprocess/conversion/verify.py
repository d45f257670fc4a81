"""Holds a converted file against its checksums."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from preprocess.files.reading import open_file
from preprocess.samples.errors import SourceError
from preprocess.sources.arrays import existing
from preprocess.sources.checked_files import DamageError, damage_named
from preprocess.sources.hdf5 import FORMAT, WHOLE, SplitIndex, read_index, refuse_elsewhere, try_hdf5
from preprocess.sources.hdf5 import open_file as open_hdf5_file


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
