"""Converts a data set into one HDF5 file that preprocessors read fast."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preprocess.conversion.block import SKIPPED, Block, FailedSample, MadeBlock
from preprocess.conversion.errors import ConversionError, ConversionFailure
from preprocess.conversion.hdf5_file import SplitContent, write_around
from preprocess.conversion.packing import Encoding
from preprocess.conversion.partial import Partial
from preprocess.conversion.plan import ConversionPlan, plan_conversion
from preprocess.conversion.pool import made_blocks
from preprocess.conversion.space import check_space
from preprocess.conversion.splits import find_splits
from preprocess.files.reading import NotAFile
from preprocess.files.writing import LaidByOthers
from preprocess.samples.layout import Array


@dataclass(frozen=True)
class ConversionProgress:
    """How far a conversion is.

    Attributes:
        done: number of samples that were dealt with, an earlier start's included.
        total: samples that there are.
        bytes: written so far.
        skipped: samples that were left out so far.
    """

    done: int
    total: int
    bytes: int
    skipped: int


@dataclass(frozen=True)
class ConvertedSplit:
    """A split of a converted file.

    Attributes:
        name: "train" or "held_out".
        samples: how many it holds.
        bytes: size of its samples.
        encoding: how they are stored: files, png, jpeg or decoded.
        classes: names of the classes, or None.
    """

    name: str
    samples: int
    bytes: int
    encoding: str
    classes: tuple[str, ...] | None


@dataclass(frozen=True)
class Conversion:
    """What a conversion has made.

    Attributes:
        path: the file.
        splits: its splits.
        skipped: the samples that were left out.
    """

    path: Path
    splits: tuple[ConvertedSplit, ...]
    skipped: tuple[FailedSample, ...]


def convert(
    source: str | Path,
    destination: str | Path,
    *,
    held_out: str | Path | None = None,
    arguments: Mapping[str, Any] | None = None,
    encoding: Encoding | None = None,
    channels: int = 3,
    quality: int = 90,
    skip_corrupt: bool = False,
    workers: int | None = None,
    force: bool = False,
    progress: Callable[[ConversionProgress], None] | None = None,
    sync_seconds: float = 1.0,
) -> Conversion:
    """Convert a data set into an HDF5 file, see `preprocess.sources.hdf5`.

    If it is killed, the same call goes on where it was; the file that comes out is the same, byte for byte, whatever
    the workers and however often it was begun. The workers are processes that are spawned: a script calls this under
    `if __name__ == "__main__":`.

    Args:
        source: a folder of images, one folder a class, or with such folders in train/ and val/, test/ or held_out/; a
            folder of IDX files; an .npz file; a tar shard, a folder of them or a pattern; Parquet or Arrow files, or a
            folder that Hugging Face's save_to_disk wrote; a Zarr store, a NetCDF-4 or LMDB file; or module:Name of a
            map-style data set.
        destination: the file.
        held_out: where the held-out samples are, if not in `source`.
        arguments: further arguments of the source: images and labels (IDX files, names in an .npz file, or columns of a
            table), extensions (image folder), label (tar), or a map-style data set's own.
        encoding: files: image files as they are; png, jpeg: images in that format; decoded: arrays; None: image files
            as they are, tiny images and all that is no image as arrays, other images as PNG.
        channels: 3 or 1, of images that come encoded, once they are decoded.
        quality: JPEG's quality, 1 to 100.
        skip_corrupt: leave out samples that cannot be read, rather than raise.
        workers: processes; None for one a core.
        force: write over a file that exists, and begin anew where another conversion was not finished.
        progress: called after each block of samples, and while a worker is slow; if it raises, the conversion stops,
            and may go on later.
        sync_seconds: how often that which is done is brought to the disk.

    Raises:
        SourceError, ConversionError: the data or the arguments are not usable, or a sample cannot be read.
        ConversionFailure: it cannot go on for another reason, such as a full disk; the finished part is kept.
    """
    path = Path(destination)
    _check_destination(path, force)
    splits = find_splits(str(source), None if held_out is None else str(held_out), dict(arguments or {}), channels)
    plan = plan_conversion(splits, encoding, channels, quality)
    with closing(_partial(path, plan, force)) as partial:
        run = _Run(plan, partial, skip_corrupt, progress, sync_seconds)
        check_space(plan, path, run.written)
        try:
            run.make_all(_worker_count(workers, plan, partial.done))
            return run.finish(path, str(source))
        except OSError as cause:
            raise _failure(cause, partial.path) from cause


class _Run:
    """One start of a conversion."""

    def __init__(
        self,
        plan: ConversionPlan,
        partial: Partial,
        skip_corrupt: bool,
        progress: Callable[[ConversionProgress], None] | None,
        sync_seconds: float,
    ) -> None:
        self._plan, self._partial, self._skip_corrupt = plan, partial, skip_corrupt
        self._progress, self._sync_seconds = progress, sync_seconds
        self._maker = plan.maker
        rows = partial.rows
        self._extents = plan.extents(rows)
        self._done, self._skipped = len(rows), int((rows["length"] == SKIPPED).sum())
        self._partial.cut(max(end for start, end in self._extents if end > start or start == plan.placement.first))
        if self._skipped and not skip_corrupt:
            self._refuse(self._left_out(rows)[0])

    @property
    def written(self) -> int:
        """Bytes of samples so far."""
        return sum(end - start for start, end in self._extents)

    def make_all(self, workers: int) -> None:
        """Make all blocks that are not on the disk; whatever happens, those that were made are."""
        synced = time.monotonic()
        try:
            self._report()
            for found in made_blocks(self._maker, self._plan.blocks(self._done), workers, self._sync_seconds):
                if found is None:
                    self._report()
                else:
                    self._take(*found)
                if time.monotonic() - synced >= self._sync_seconds:
                    self._partial.sync()
                    synced = time.monotonic()
        finally:
            self._partial.sync()

    def finish(self, destination: Path, source: str) -> Conversion:
        """Write HDF5's part of the file, and give it its name."""
        rows = self._partial.rows
        contents = self._plan.contents(rows)
        starts = [start for start, _ in self._plan.extents(rows)]
        write_around(self._partial.path, contents, starts, {"source": source})
        self._partial.finish(destination)
        sizes = [end - start for start, end in self._extents]
        splits = tuple(_summary(content, size) for content, size in zip(contents, sizes))
        return Conversion(destination, splits, self._left_out(rows))

    def _take(self, block: Block, made: MadeBlock) -> None:
        """Write a made block behind those before it."""
        if made.failures and not self._skip_corrupt:
            self._refuse(made.failures[0])
        start, end = self._extents[block.split]
        if block.start == 0 and block.split > 0:
            start = end = self._plan.placement.after(self._extents[block.split - 1][1])
        self._partial.write(made, end)
        self._extents[block.split] = start, end + len(made.content)
        self._done += block.stop - block.start
        self._skipped += len(made.failures)
        self._report()

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(ConversionProgress(self._done, self._plan.total, self.written, self._skipped))

    def _refuse(self, failure: FailedSample) -> None:
        rule = f"cannot be read ({failure.reason})"
        raise ConversionError(failure.name, rule, "mend or remove it, or leave such samples out: --skip-corrupt")

    def _left_out(self, rows: Array) -> tuple[FailedSample, ...]:
        """The samples that were left out, by this start or an earlier one; each is tried once more, to say why."""
        found: list[FailedSample] = []
        for split, part in enumerate(self._plan.split_rows(rows)):
            for sample in (part["length"] == SKIPPED).nonzero()[0].tolist():
                found += self._maker(Block(split, sample, sample + 1)).failures
        return tuple(found)


def _partial(path: Path, plan: ConversionPlan, force: bool) -> Partial:
    try:
        return Partial(path, plan.header(), plan.row, force)
    except (LaidByOthers, NotAFile) as cause:
        rule, _, mend = str(cause.strerror).partition(": ")
        raise ConversionError(str(cause.filename), rule, mend or "remove it") from cause
    except OSError as cause:
        raise _failure(cause, path) from cause


def _check_destination(path: Path, force: bool) -> None:
    if path.is_dir():
        raise ConversionError(str(path), "is a folder", f"name a file, such as {path / 'data.h5'}")
    if path.exists() and not force:
        raise ConversionError(str(path), "exists already", "give another name, or --force to write over it")
    if not path.parent.is_dir():
        raise ConversionError(str(path), f"there is no folder {path.parent}", "make it first")
    if not os.access(path.parent, os.W_OK):
        raise ConversionError(str(path), f"the folder {path.parent} cannot be written", "choose another one")


def _worker_count(workers: int | None, plan: ConversionPlan, done: int) -> int:
    if workers is not None and workers < 1:
        raise ConversionError(workers, "at least one worker is needed", "write --workers 1")
    copied = plan.packing.encoding == "decoded" and plan.splits[0].source in ("idx", "numpy")
    if copied:  # nothing is computed: handing samples to another process costs more
        return 1
    wanted = workers if workers is not None else len(os.sched_getaffinity(0))
    return min(wanted, sum(1 for _ in plan.blocks(done)))


def _summary(content: SplitContent, size: int) -> ConvertedSplit:
    classes = None if content.classes is None else tuple(content.classes)
    return ConvertedSplit(
        content.name, int(content.attributes["samples"]), size, str(content.attributes["encoding"]), classes
    )


def _failure(cause: OSError, partial: Path) -> ConversionFailure:
    what = "the disk is full" if cause.errno in (errno.ENOSPC, errno.EDQUOT) else str(cause)
    return ConversionFailure(f"{partial}: {what}; what was done is kept: mend that, and give the same command again")
