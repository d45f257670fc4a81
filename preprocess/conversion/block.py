"""Blocks of samples: what a worker is told to make, and what it gives back."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from preprocess.conversion.packing import StoredForm
from preprocess.conversion.split import Split
from preprocess.samples.layout import Array
from preprocess.sources.source import Source

#: Length, in its row, of a sample that was left out.
SKIPPED = -1


@dataclass(frozen=True)
class Block:
    """The samples start, start + 1 ... stop - 1 of a split, given by its place in the list of splits."""

    split: int
    start: int
    stop: int


@dataclass(frozen=True)
class FailedSample:
    """A sample that could not be made.

    Attributes:
        split: name of its split.
        sample: index in the source.
        name: what the source calls it, such as the path of a file.
        reason: the error.
    """

    split: str
    sample: int
    name: str
    reason: str


@dataclass(frozen=True)
class MadeBlock:
    """The samples of a block.

    Attributes:
        content: their bytes, end to end.
        rows: for each, its row, see `row_dtype`.
        failures: which ones could not be made; their rows say SKIPPED.
    """

    content: bytes
    rows: Array
    failures: tuple[FailedSample, ...]


def row_dtype(target_shape: tuple[int, ...], target_dtype: str) -> np.dtype[Any]:
    """Return the dtype of a sample's record, which holds all but its bytes."""
    target = np.dtype(target_dtype).newbyteorder("<")
    fields: list[Any] = [("length", "<i8"), ("crc32", "<u4"), ("height", "<i4"), ("width", "<i4")]
    return np.dtype([*fields, ("target", target, target_shape)])


class BlockMaker:
    """Makes blocks. A worker is given a copy: with the lists of images, so that all have the same, and each is made
    once; other sources it opens itself when they are first needed.

    Args:
        splits: the splits.
        sources: their opened sources.
        packing: how samples are stored.
        rows: the dtype of a row.
    """

    def __init__(
        self, splits: Sequence[Split], sources: Sequence[Source], packing: StoredForm, rows: np.dtype[Any]
    ) -> None:
        self._splits, self._packing, self._rows = tuple(splits), packing, rows
        self._sources = dict(enumerate(sources))

    def __call__(self, block: Block) -> MadeBlock:
        """Make a block.

        Raises:
            SourceError: the source cannot be opened.
            OSError: the system cannot read a file; not one of a broken file.
        """
        rows = np.zeros(block.stop - block.start, self._rows)
        rows["length"] = SKIPPED
        contents, failures = [], []
        for row, index in enumerate(range(block.start, block.stop)):
            try:
                content, rows[row] = self._make(block.split, index)
                contents.append(content)
            except ModuleNotFoundError:
                raise
            except Exception as cause:  # the user's code may raise anything
                if isinstance(cause, OSError) and cause.errno is not None:
                    raise
                failures.append(self._failure(block.split, index, cause))
        return MadeBlock(b"".join(contents), rows, tuple(failures))

    def __getstate__(self) -> dict[str, Any]:
        kept = {split: source for split, source in self._sources.items() if getattr(source, "encoded", False)}
        return self.__dict__ | {"_sources": kept}

    def source(self, split: int) -> Source:
        """Return the opened source of a split."""
        if split not in self._sources:
            self._sources[split] = self._splits[split].open()
        return self._sources[split]

    def _make(self, split: int, index: int) -> tuple[bytes, tuple[Any, ...]]:
        source = self.source(split)
        sample, target = source.read(index)
        packed = self._packing.pack(sample)
        value = np.asarray(target)
        wanted = self._rows["target"]
        if value.shape != wanted.shape or not np.can_cast(value.dtype, wanted.base, "same_kind"):
            rule = f"its target is {value.shape} of {value.dtype}, the first sample's {wanted.shape}"
            raise ValueError(f"{rule} of {wanted.base}")
        content = packed.content
        return content, (len(content), zlib.crc32(content), packed.height, packed.width, value)

    def _failure(self, split: int, index: int, cause: Exception) -> FailedSample:
        source, name = self.source(split), self._splits[split].name
        describe = getattr(source, "describe", None)
        called = describe(index) if describe else f"{self._splits[split].source}, {name} sample {index}"
        return FailedSample(name, index, called, f"{type(cause).__name__}: {cause}")
