"""Converts a data set into one HDF5 file that preprocessors read fast.

Blocks of samples are made by worker processes, appended in order to a partial file, and noted in a record beside it,
from which a conversion that was killed goes on.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import os
import shutil
import signal
import struct
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from preprocess.conversion.hdf5_file import Placement, SplitContent, measure_placement, write_around
from preprocess.conversion.packing import (
    SKIPPED,
    Block,
    BlockMaker,
    ConversionError,
    ConversionFailure,
    Encoding,
    FailedSample,
    MadeBlock,
    Split,
    StoredForm,
    choose_packing,
    row_dtype,
)
from preprocess.conversion.splits import find_splits
from preprocess.files.memory import check_claim
from preprocess.files.modules import importable_folders, safe_path, spawned
from preprocess.files.reading import NotAFile
from preprocess.files.writing import LaidByOthers, open_in_place, put_in_place, sync_folder
from preprocess.samples.layout import Array
from preprocess.sources.source import Source

if TYPE_CHECKING:
    from multiprocessing.context import SpawnContext


_WHOLE_FILE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)  # struct flock of fcntl(2)


class Partial:
    """DST.partial, to which samples are appended, and DST.partial.progress, which says what of it is on the disk.

    The record is one line of JSON on the data and the way they are converted, then one row a sample, with a checksum
    of its own. The samples are fsynced before their rows are written, and the rows are fsynced too: whole rows are
    true, whenever the process or the machine died.

    Attributes:
        path: the partial file.
        done: how many samples are on the disk.

    Args:
        destination: DST.
        header: the data and how they are converted, plain JSON values; a record with another header is not continued.
        row: dtype of a row.
        force: begin anew if there is a record of another conversion.

    Raises:
        ConversionError: it is another conversion's, or another process is at it.
        LaidByOthers, NotAFile: somebody laid something else under these names.
    """

    def __init__(self, destination: Path, header: Mapping[str, Any], row: np.dtype[Any], force: bool) -> None:
        self.path = destination.with_name(destination.name + ".partial")
        self._record_path = destination.with_name(destination.name + ".partial.progress")
        self._checked = np.dtype([("row", row), ("check", "<u4")])
        line = json.dumps(header, sort_keys=True).encode() + b"\n"
        self._data = _locked(self.path)
        try:
            self._record, rows = self._begin(line, row, force)
        except BaseException:
            self._data.close()
            raise
        self.done = len(rows)
        self._noted, self._pending = [rows], list[Array]()

    @property
    def rows(self) -> Array:
        """The rows of the samples that are on the disk, in order."""
        self._noted = [np.concatenate(self._noted)]
        return self._noted[0]

    def write(self, made: MadeBlock, position: int) -> None:
        """Write the samples of a block at a position of the file; `sync` makes them last."""
        remaining = memoryview(made.content)
        while remaining:
            done = os.pwrite(self._data.fileno(), remaining, position)
            remaining, position = remaining[done:], position + done
        self._pending.append(made.rows)

    def sync(self) -> None:
        """Bring all that was written to the disk, and note that it is there."""
        if not self._pending:
            return
        os.fsync(self._data.fileno())
        rows = np.concatenate(self._pending)
        self._record.write(self._with_checks(rows))
        self._record.flush()
        os.fsync(self._record.fileno())
        self.done += len(rows)
        self._noted.append(rows)
        self._pending = []

    def cut(self, end: int) -> None:
        """Forget what lies behind `end`, which was written and not noted."""
        self._data.truncate(end)

    def finish(self, destination: Path) -> None:
        """Give the file, complete by now, its name."""
        os.fsync(self._data.fileno())
        put_in_place(self.path, destination)
        self._record_path.unlink()

    def close(self) -> None:
        """Close the files; whatever is on the disk stays."""
        if not self.done:
            self.path.unlink(missing_ok=True)
            self._record_path.unlink(missing_ok=True)
        self._data.close()
        self._record.close()

    def _begin(self, line: bytes, row: np.dtype[Any], force: bool) -> tuple[BinaryIO, Array]:
        """Open the record; give the rows that it has."""
        record = io.BufferedRandom(open_in_place(self._record_path))  # type: ignore[arg-type]
        try:
            return record, self._continued(record, line, row, force)
        except BaseException:
            record.close()
            raise

    def _continued(self, record: BinaryIO, line: bytes, row: np.dtype[Any], force: bool) -> Array:
        """Bring the record to the end of its whole rows, which are returned."""
        check_claim(self._record_path, os.fstat(record.fileno()).st_size)
        known = record.read()
        head, newline, body = known.partition(b"\n")
        ours = head + newline == line
        theirs = body if newline else self._data.seek(0, os.SEEK_END)
        if theirs and not ours and not force:
            rule = "is of another conversion, of other data or with other options, which was not finished"
            raise ConversionError(str(self.path), rule, "give the same command as then, or --force to begin anew")
        rows = self._whole_rows(body) if ours else np.empty(0, row)
        if not ours:
            self._data.truncate(0)
            record.seek(0)
            record.write(line)
        record.seek(len(line) + len(rows) * self._checked.itemsize)
        record.truncate()
        record.flush()
        os.fsync(record.fileno())
        sync_folder(self.path.parent)
        return rows

    def _whole_rows(self, body: bytes) -> Array:
        """The rows up to the first that is cut off or was not written."""
        table = np.frombuffer(body[: len(body) - len(body) % self._checked.itemsize], self._checked)
        good = 0
        while good < len(table) and zlib.crc32(table["row"][good].tobytes(), 1) == table["check"][good]:
            good += 1
        return table["row"][:good].copy()

    def _with_checks(self, rows: Array) -> bytes:
        table = np.zeros(len(rows), self._checked)
        table["row"] = rows
        table["check"] = [zlib.crc32(row.tobytes(), 1) for row in rows]
        return table.tobytes()


def _locked(path: Path) -> BinaryIO:
    """Open the partial file for this process alone."""
    data = open_in_place(path)
    try:
        fcntl.fcntl(data, fcntl.F_OFD_SETLK, _WHOLE_FILE)  # not flock, which whoever may read the file can hold
    except (BlockingIOError, PermissionError):
        data.close()
        rule = "another process is converting into it"
        raise ConversionError(str(path), rule, "wait for that one, or give another destination") from None
    except OSError:
        pass  # a file system without locks
    return data


#: Blocks that may be made and wait for one before them, for each worker.
_AHEAD = 4


def _made_blocks(
    maker: BlockMaker, blocks: Iterable[Block], workers: int, patience: float
) -> Iterator[tuple[Block, MadeBlock] | None]:
    """Make the blocks and yield each with its block, in their order, whichever process makes them and when.

    Args:
        maker: makes them.
        blocks: which.
        workers: processes that make them; 1 for this process alone.
        patience: seconds after which None is yielded if there is nothing else, so that the caller can do something.

    Raises:
        ConversionFailure: a worker died.
        DataSpecError, OSError: what a worker raised.
    """
    if workers <= 1:
        yield from ((block, maker(block)) for block in blocks)
        return
    pool = _Pool(maker, workers)
    try:
        yield from pool.run(blocks, patience)
    finally:
        pool.end()


class _Pool:
    """Workers, each at the end of a pipe: one whose parent dies reads the end of the pipe and ends too."""

    def __init__(self, maker: BlockMaker, workers: int) -> None:
        context = get_context("spawn")  # a fork would share the sources' files, and the locks of threads
        self._workers = [_Worker(context, maker) for _ in range(workers)]

    def run(self, blocks: Iterable[Block], patience: float) -> Iterator[tuple[Block, MadeBlock] | None]:
        """See `_made_blocks`."""
        waiting = iter(blocks)
        order: deque[Block] = deque()
        made: dict[Block, MadeBlock] = {}
        idle = deque(self._workers)
        busy: dict[Connection, tuple[_Worker, Block]] = {}
        while True:
            while idle and len(order) < _AHEAD * len(self._workers) and (block := next(waiting, None)) is not None:
                worker = idle.popleft()
                worker.tell(block)
                busy[worker.pipe] = worker, block
                order.append(block)
            if not order:
                return
            ready = wait(list(busy), patience)
            if not ready:
                yield None
            for pipe in ready:
                assert isinstance(pipe, Connection)
                worker, block = busy.pop(pipe)
                made[block] = worker.answer(block)
                idle.append(worker)
            while order and order[0] in made:
                yield order[0], made.pop(order.popleft())

    def end(self) -> None:
        """End the workers, whatever they do."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()


class _Worker:
    """One process, and this end of its pipe."""

    def __init__(self, context: SpawnContext, maker: BlockMaker) -> None:
        self.pipe, other = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=_work, args=(other, maker, importable_folders()), daemon=True
        )
        with safe_path():
            self.process.start()
        other.close()

    def tell(self, block: Block) -> None:
        try:
            self.pipe.send(block)
        except OSError:
            raise self._died(block) from None

    def answer(self, block: Block) -> MadeBlock:
        try:
            found = self.pipe.recv()
        except (EOFError, OSError):
            raise self._died(block) from None
        if isinstance(found, BaseException):
            raise found
        assert isinstance(found, MadeBlock)
        return found

    def _died(self, block: Block) -> ConversionFailure:
        self.process.join(timeout=10)
        code = self.process.exitcode
        how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
        return ConversionFailure(
            f"a worker {how} at the samples {block.start} to {block.stop - 1}; if memory ran out, lower --workers; "
            "what was done is kept: give the same command again to go on"
        )


def _work(pipe: Connection, maker: BlockMaker, folders: Sequence[str]) -> None:
    """Make the blocks that come through the pipe until it ends; a person's modules are found in these folders."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):  # terminals and batch systems signal all
        signal.signal(number, signal.SIG_IGN)  # the parent decides
    with spawned(folders), suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent is gone
        while True:
            block = pipe.recv()
            try:
                answer: object = maker(block)
            except Exception as cause:
                answer = _sendable(cause)
            pipe.send(answer)


def _sendable(cause: Exception) -> Exception:
    """An error that means the same to the parent: some cannot be rebuilt there."""
    if isinstance(cause, OSError) and type(cause).__module__ == "builtins":
        return cause
    return ConversionFailure(f"{type(cause).__name__}: {cause}")


#: Samples of a block: enough to make telling a worker cheap, few enough to hold some of them in memory.
_BLOCK = 64


@dataclass(frozen=True)
class ConversionPlan:
    """The data that are converted, their stored form, and their places in the file.

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


def _plan_conversion(splits: Sequence[Split], encoding: Encoding | None, channels: int, quality: int) -> ConversionPlan:
    """Open the sources of the splits and plan their conversion.

    Raises:
        SourceError: one cannot be opened.
        ConversionError: the samples cannot be stored so, or the splits' samples are not alike.
    """
    opened: list[Source] = []
    whole: list[Split] = []
    for split in splits:
        classes = getattr(opened[0], "classes", None) if opened else None
        named = split.source in ("image_folder", "tar", "lmdb") or getattr(
            opened[0] if opened else None, "targets_are_names", False
        )
        if classes is not None and named:  # so that numbers mean the same in both splits
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


#: Samples whose size is looked at, if their sizes differ.
_TRIED = 32


def _check_space(plan: ConversionPlan, destination: Path, written: int) -> None:
    """Check that the rest of a conversion fits on the disk, `written` bytes being there already.

    Raises:
        ConversionError: it does not.
    """
    needed = _expected_bytes(plan) - written
    free = shutil.disk_usage(destination.parent).free
    if needed > free:
        gib = 2**30
        rule = f"needs about {needed / gib:.2f} GiB more, and {destination.parent} has {free / gib:.2f} GiB free"
        raise ConversionError(str(destination), rule, "make room or choose another folder")


def _expected_bytes(plan: ConversionPlan) -> int:
    """Return about how many bytes the file will have."""
    index = plan.total * (plan.row.itemsize + 8) * 2  # in the file, and in the record meanwhile
    return index + sum(_samples_bytes(plan, split) for split in range(len(plan.splits)))


def _samples_bytes(plan: ConversionPlan, split: int) -> int:
    """Bytes of a split's samples: known, or judged by some that are spread over it."""
    if plan.packing.sample_bytes is not None:
        return plan.lengths[split] * plan.packing.sample_bytes
    source = plan.maker.source(split)
    sizes = []
    for index in np.unique(np.linspace(0, len(source) - 1, _TRIED).astype(int)).tolist():
        try:
            content, _ = source.read(index)
            sizes.append(len(content) if plan.packing.encoding == "files" else len(plan.packing.pack(content).content))
        except Exception:  # whatever is wrong with it is said when its turn comes
            continue
    return int(np.mean(sizes) * len(source)) if sizes else 0


@dataclass(frozen=True)
class ConversionProgress:
    """Progress of a conversion.

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
    """Result of a conversion.

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
    plan = _plan_conversion(splits, encoding, channels, quality)
    with closing(_partial(path, plan, force)) as partial:
        run = _Run(plan, partial, skip_corrupt, progress, sync_seconds)
        _check_space(plan, path, run.written)
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
            for found in _made_blocks(self._maker, self._plan.blocks(self._done), workers, self._sync_seconds):
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
