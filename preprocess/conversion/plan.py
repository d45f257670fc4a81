"""The plan of a conversion: what is converted, how it is stored, and where in the file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from preprocess.conversion.block import SKIPPED, Block, BlockMaker, row_dtype
from preprocess.conversion.errors import ConversionError
from preprocess.conversion.hdf5_file import Placement, SplitContent, measure_placement
from preprocess.conversion.packing import Encoding, StoredForm, choose_packing
from preprocess.conversion.split import Split
from preprocess.samples.layout import Array
from preprocess.sources.source import Source

#: Samples of a block: enough to make telling a worker cheap, few enough to hold some of them in memory.
_BLOCK = 64


@dataclass(frozen=True)
class ConversionPlan:
    """What is converted, how it is stored, and where in the file.

    Attributes:
        splits: the splits.
        lengths: samples of each.
        classes: names of the classes of each, or None.
        digest: digest of the samples' names, so that a conversion does not go on with other data.
        packing: how samples are stored.
        target_shape, target_dtype: shape and dtype of every target.
        placement: where HDF5 will put the samples.
        maker: makes the blocks.
    """

    splits: tuple[Split, ...]
    lengths: tuple[int, ...]
    classes: tuple[list[str] | None, ...]
    digest: str
    packing: StoredForm
    target_shape: tuple[int, ...]
    target_dtype: str
    placement: Placement
    maker: BlockMaker

    @property
    def total(self) -> int:
        """Samples of all splits."""
        return sum(self.lengths)

    @property
    def row(self) -> np.dtype[Any]:
        """The dtype of a sample's record, which holds all but its bytes."""
        return row_dtype(self.target_shape, self.target_dtype)

    def header(self) -> dict[str, Any]:
        """Return what must be the same for a conversion to go on, as plain JSON values."""
        return {
            "splits": [[split.name, split.source, _plain(split.arguments)] for split in self.splits],
            "lengths": self.lengths,
            "classes": self.classes,
            "digest": self.digest,
            "packing": asdict(self.packing),
            "target": [self.target_shape, self.target_dtype],
            "placement": asdict(self.placement),
        }

    def blocks(self, done: int) -> Iterator[Block]:
        """Yield the blocks that come after so many samples."""
        before = 0
        for split, length in enumerate(self.lengths):
            for start in range(max(done - before, 0), length, _BLOCK):
                yield Block(split, start, min(start + _BLOCK, length))
            before += length

    def split_rows(self, rows: Array) -> list[Array]:
        """Return the rows of each split, as far as they go."""
        return np.split(rows, np.cumsum(self.lengths)[:-1])

    def extents(self, rows: Array) -> list[tuple[int, int]]:
        """Return where the samples of each split begin and end in the file, given the rows of all so far."""
        extents: list[tuple[int, int]] = []
        for part in self.split_rows(rows):
            start = self.placement.after(extents[-1][1]) if extents else self.placement.first
            extents.append((start, start + int(part["length"][part["length"] != SKIPPED].sum())))
        return extents

    def contents(self, rows: Array) -> list[SplitContent]:
        """Return what the file holds besides the samples, given the rows of all.

        Raises:
            ConversionError: a split has no sample left.
        """
        parts = zip(self.splits, self.split_rows(rows), self.classes)
        return [self._content(split, part, classes) for split, part, classes in parts]

    def _content(self, split: Split, part: Array, classes: list[str] | None) -> SplitContent:
        kept = part[part["length"] != SKIPPED]
        if not len(kept):
            rule = f"none of the {len(part)} samples of {split.name} can be read"
            raise ConversionError(str(split.arguments.get("path", split.source)), rule, "check the files")
        index = {"labels": np.ascontiguousarray(kept["target"]), "crc32": np.ascontiguousarray(kept["crc32"])}
        attributes: dict[str, Any] = {
            "samples": len(kept),
            "skipped": len(part) - len(kept),
            "encoding": self.packing.encoding,
        }
        if self.packing.encoding == "decoded":
            shape, dtype = (len(kept), *self.packing.shape), self.packing.dtype
            return SplitContent(split.name, "inputs", shape, dtype, index, classes, attributes)
        offsets = np.concatenate([[0], np.cumsum(kept["length"])]).astype(np.int64)
        shapes = [int(side[0]) if (side == side[0]).all() else -1 for side in (kept["height"], kept["width"])]
        attributes |= {"channels": self.packing.channels, "image_shape": shapes}
        index["offsets"] = offsets
        return SplitContent(split.name, "bytes", (int(offsets[-1]),), "uint8", index, classes, attributes)


def plan_conversion(splits: Sequence[Split], encoding: Encoding | None, channels: int, quality: int) -> ConversionPlan:
    """Open the sources of the splits and plan their conversion.

    Raises:
        SourceError: one cannot be opened.
        ConversionError: the samples cannot be stored so, or the splits' samples are not alike.
    """
    opened: list[Source] = []
    whole: list[Split] = []
    for split in splits:
        classes = getattr(opened[0], "classes", None) if opened else None
        if classes is not None and _takes_classes(opened[0], split):
            split = replace(split, arguments={**split.arguments, "classes": list(classes)})
        opened.append(split.open())
        whole.append(split)
    packings = [
        choose_packing(source, encoding, channels, quality, _name(split)) for source, split in zip(opened, whole)
    ]
    targets = [_target(source) for source in opened]
    for split, packing, target in zip(whole, packings, targets):
        if (packing, target) != (packings[0], targets[0]):
            rule = f"its samples are {_words(packing, target)}, those to train on {_words(packings[0], targets[0])}"
            raise ConversionError(_name(split), rule, "give splits that are alike")
    samples, rank = ("inputs", 1 + len(packings[0].shape)) if packings[0].encoding == "decoded" else ("bytes", 1)
    return ConversionPlan(
        tuple(whole),
        tuple(len(source) for source in opened),
        tuple(_classes(source) for source in opened),
        _digest(opened),
        packings[0],
        *targets[0],
        measure_placement([split.name for split in whole], samples, rank, packings[0].dtype),
        BlockMaker(whole, opened, packings[0], row_dtype(*targets[0])),
    )


def _takes_classes(first: Source, split: Split) -> bool:
    """Whether the names of the first split's classes are to be given to another one, so that numbers mean the same."""
    return split.source in ("image_folder", "tar", "lmdb") or bool(getattr(first, "targets_are_names", False))


def _target(source: Source) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of the targets: of encoded images classes, unless the source says; their layout takes long."""
    known: tuple[tuple[int, ...], str] | None = getattr(source, "target_layout", None)
    if known is not None:
        return known
    if getattr(source, "encoded", False):
        return (), "int64"
    return source.layout.target_shape, source.layout.target_dtype


def _classes(source: Source) -> list[str] | None:
    classes = getattr(source, "classes", None)
    return None if classes is None else [str(name) for name in classes]


def _digest(sources: Sequence[Source]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for source in sources:
        describe = getattr(source, "describe", None)
        for index in range(len(source) if describe else 0):
            digest.update(f"{describe(index)}\n".encode(errors="surrogateescape"))  # type: ignore[misc]
    return digest.hexdigest()


def _name(split: Split) -> str:
    return str(split.arguments.get("path", split.source))


def _words(packing: StoredForm, target: tuple[tuple[int, ...], str]) -> str:
    shape = f"{packing.shape} of {packing.dtype}" if packing.encoding == "decoded" else f"{packing.encoding} images"
    return f"{shape} with targets {target[0]} of {target[1]}"


def _plain(arguments: Any) -> Any:
    """Arguments as JSON can hold them; what it cannot is named by its type."""
    if isinstance(arguments, dict):
        return {str(key): _plain(value) for key, value in arguments.items()}
    if isinstance(arguments, (list, tuple)):
        return [_plain(value) for value in arguments]
    return arguments if isinstance(arguments, (str, int, float, bool, type(None))) else type(arguments).__name__
