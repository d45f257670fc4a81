"""The prepared samples of a data set that a preprocessor keeps, as they are after the transforms that draw nothing.

All lanes use it, whatever their seeds and epochs: what comes after, a random crop or flip, is done for each anew.

Those that are read soonest are kept (Belady, 1966). Belady's rule looks at all that is kept; here it looks at a window
of neighbours, drawn at random, which costs a constant time and prepares hardly more samples. The bytes lie in memory of
this process, or in a file without a name, and go with the process.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
import time
from bisect import bisect_left, insort
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from preprocess.samples.layout import Array, Indices, SampleLayout
from preprocess.samples.order import EpochOrders
from preprocess.samples.stream import LanePortions, LaneSpec
from preprocess.store.futures import KnownFutures, LaneFutures, OwnedKeys

_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14; Python has no name for it yet
_PAGE = 4096
_PIECE = 2**26


class Arena(Protocol):
    """A stretch of bytes."""

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    def write(self, offset: int, parts: tuple[Array, ...]) -> None:
        """Write arrays one after the other; raises OSError where that cannot be."""
        ...

    def read(self, offset: int, size: int) -> Array:
        """The bytes there, uint8, valid until the next call; raises OSError where that cannot be."""
        ...


class MemoryArena:
    """Memory of this process, all pages of which are there from the start.

    Args:
        size: bytes.

    Raises:
        OSError: there is too little.
    """

    def __init__(self, size: int) -> None:
        self._map = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._bytes = np.frombuffer(self._map, np.uint8)[:size]
        _touch(self._map, self._bytes)

    @property
    def size(self) -> int:
        return self._bytes.nbytes

    def write(self, offset: int, parts: tuple[Array, ...]) -> None:
        for part in parts:
            self._bytes[offset : offset + part.nbytes].view(part.dtype).reshape(part.shape)[...] = part
            offset += part.nbytes

    def read(self, offset: int, size: int) -> Array:
        return self._bytes[offset : offset + size]


class FileArena:
    """A file without a name, whose blocks are there from the start, so that a full disk is found out then.

    Args:
        folder: where it lies.
        size: bytes.

    Raises:
        OSError: the disk has too little room, or the folder is not there.
    """

    def __init__(self, folder: str, size: int) -> None:
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 it is open as long as this is
        self.size = size
        self._scratch = np.empty(0, np.uint8)
        if size:
            os.posix_fallocate(self._file.fileno(), 0, size)

    def write(self, offset: int, parts: tuple[Array, ...]) -> None:
        for part in parts:
            whole = memoryview(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
            while whole:
                written = os.pwrite(self._file.fileno(), whole, offset)
                whole, offset = whole[written:], offset + written

    def read(self, offset: int, size: int) -> Array:
        if self._scratch.nbytes < size:
            self._scratch = np.empty(size, np.uint8)
        found = self._scratch[:size]
        done = 0
        while done < size:
            got = os.preadv(self._file.fileno(), [found.data[done:]], offset + done)
            if got == 0:
                raise OSError(f"the file of kept samples ends at byte {offset + done}")
            done += got
        return found


def _touch(block: mmap.mmap, view: Array) -> None:
    """Let all pages be there, large ones where the system has them; in pieces, as Python stands still meanwhile."""
    with suppress(OSError, AttributeError):
        block.madvise(mmap.MADV_HUGEPAGE)
    for start in range(0, view.nbytes, _PIECE):
        piece = view[start : start + _PIECE]
        try:
            block.madvise(_POPULATE_WRITE, start, len(piece))
        except OSError:
            piece[::_PAGE] = 0


ALIGNMENT = 64  # a cache line


def rounded(size: int) -> int:
    """Bytes that something of so many bytes takes."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class BlockAllocator:
    """Gives stretches of memory away and takes them back.

    Args:
        size: bytes in all.
    """

    def __init__(self, size: int) -> None:
        size = size // ALIGNMENT * ALIGNMENT
        self._by_size = [(size, 0)] if size else []  # free ones, (bytes, offset), ascending
        self._sizes = {offset: length for length, offset in self._by_size}  # offset -> bytes, of the free ones
        self._offsets = {offset + length: offset for length, offset in self._by_size}  # end -> offset, likewise

    def take(self, size: int) -> int | None:
        """The offset of the smallest free stretch that holds so many bytes, or None; it is taken from its start."""
        size = rounded(size)
        place = bisect_left(self._by_size, (size, 0))
        if place == len(self._by_size):
            return None
        length, offset = self._by_size[place]
        self._remove(length, offset)
        if length > size:
            self._add(length - size, offset + size)
        return offset

    def give(self, offset: int, size: int) -> None:
        """Take back what `take` gave for that size."""
        size = rounded(size)
        after = self._sizes.get(offset + size)
        if after is not None:
            self._remove(after, offset + size)
            size += after
        before = self._offsets.get(offset)
        if before is not None:
            self._remove(offset - before, before)
            offset, size = before, size + offset - before
        self._add(size, offset)

    def _add(self, size: int, offset: int) -> None:
        insort(self._by_size, (size, offset))
        self._sizes[offset] = size
        self._offsets[offset + size] = offset

    def _remove(self, size: int, offset: int) -> None:
        self._by_size.pop(bisect_left(self._by_size, (size, offset)))
        del self._sizes[offset], self._offsets[offset + size]


TRIES = 12  # samples that are looked at for each one that wants to be kept
_ABSENT = -1


@dataclass(frozen=True)
class Choice:
    """Fate of samples that were just prepared.

    Attributes:
        kept: whether each is kept, (count,).
        evicted: samples that go in their place, (any,).
    """

    kept: npt.NDArray[np.bool_]
    evicted: Indices


class Keeper:
    """Knows what is kept, and who goes where there is no room. The caller holds the samples themselves.

    It takes 16 bytes a kept sample, and 4 bytes for each sample of the data set.

    Args:
        futures: when each sample is read next.
        budget: bytes.
        draw: where windows lie.
        tries: samples that are looked at for each newcomer.
    """

    def __init__(self, futures: KnownFutures, budget: int, draw: np.random.Generator, tries: int = TRIES) -> None:
        self._futures, self._budget, self._draw, self._tries = futures, budget, draw, tries
        self._place = np.full(futures.samples, _ABSENT, np.int32)  # in the two that follow
        self._kept = np.empty(0, np.int64)
        self._bytes = np.empty(0, np.int64)
        self._count = self._used = 0

    @property
    def used(self) -> int:
        """Bytes of what is kept."""
        return self._used

    @property
    def nbytes(self) -> int:
        """Memory that this takes, without the samples."""
        return self._place.nbytes + self._kept.nbytes + self._bytes.nbytes

    def __len__(self) -> int:
        """Number of samples that are kept."""
        return self._count

    def holds(self, samples: Indices) -> npt.NDArray[np.bool_]:
        """Whether each of these samples is kept, (count,)."""
        return np.asarray(self._place[samples] != _ABSENT)

    def choose(self, samples: Indices, sizes: npt.NDArray[np.int64]) -> Choice:
        """Keep those of some samples that are read soonest, in the place of others that are read later.

        Args:
            samples: different ones that are not kept, (count,).
            sizes: bytes of each, (count,).
        """
        free = self._budget - self._used
        if sizes.sum() <= free:
            self._add(samples, sizes)
            return Choice(np.ones(len(samples), np.bool_), np.empty(0, np.int64))
        window = self._window(self._tries * len(samples))
        rivals = np.concatenate([samples, self._kept[window]])
        weights = np.concatenate([sizes, self._bytes[window]])
        soonest = np.argsort(self._futures.seconds_until(rivals), kind="stable")
        stays = np.zeros(len(rivals), np.bool_)
        room = free + int(self._bytes[window].sum())
        stays[soonest] = np.cumsum(weights[soonest]) <= room
        kept, gone = stays[: len(samples)], window[~stays[len(samples) :]]
        evicted = self._kept[gone]
        self._remove(gone)
        self._add(samples[kept], sizes[kept])
        return Choice(kept, evicted)

    def forget(self, samples: Indices) -> None:
        """Forget kept samples, which are lost."""
        self._remove(np.sort(self._place[samples].astype(np.int64)))

    def relabel(self, labels: Indices, futures: KnownFutures) -> None:
        """Let sample i have the number labels[i] from now on, in an index of other futures."""
        self._futures = futures
        self._kept[: self._count] = labels[self._kept[: self._count]]
        self._place = np.full(futures.samples, _ABSENT, np.int32)
        self._place[self._kept[: self._count]] = np.arange(self._count)

    def _window(self, length: int) -> Indices:
        """Neighbouring places among what is kept, ascending."""
        if length >= self._count:
            return np.arange(self._count)
        start = int(self._draw.integers(self._count))
        return np.sort((start + np.arange(length)) % self._count)

    def _add(self, samples: Indices, sizes: npt.NDArray[np.int64]) -> None:
        end = self._count + len(samples)
        if end > len(self._kept):
            more = np.empty(max(end, 2 * len(self._kept), 1024) - len(self._kept), np.int64)
            self._kept, self._bytes = np.concatenate([self._kept, more]), np.concatenate([self._bytes, more])
        self._kept[self._count : end], self._bytes[self._count : end] = samples, sizes
        self._place[samples] = np.arange(self._count, end)
        self._count, self._used = end, self._used + int(sizes.sum())

    def _remove(self, places: Indices) -> None:
        """Take out what lies at these ascending places; the last ones fill the gaps."""
        self._place[self._kept[places]] = _ABSENT
        self._used -= int(self._bytes[places].sum())
        end = self._count - len(places)
        tail = np.arange(end, self._count)
        movers = tail[self._place[self._kept[tail]] != _ABSENT]
        gaps = places[: len(movers)]
        self._kept[gaps], self._bytes[gaps] = self._kept[movers], self._bytes[movers]
        self._place[self._kept[gaps]] = gaps
        self._count = end


_NOWHERE = -1


@dataclass(frozen=True)
class Prepared:
    """A sample after the transforms that draw nothing.

    Attributes:
        image: its input so far, of the layout that the store was made for; not to be written to.
        target: with the layout's shape and dtype.
    """

    image: Array
    target: Array


class Tier:
    """Keeps samples in an arena. Which ones, a `Keeper` chooses; the latest lie in a reserve until it has chosen.

    Args:
        arena: where they lie.
        reserve: bytes of it for samples that nothing is decided of.
        layout: how prepared samples are laid out; -1 for a side that differs.
        futures: when each is read next.
        draw: see `Keeper`.
    """

    def __init__(
        self, arena: Arena, reserve: int, layout: SampleLayout, futures: KnownFutures, draw: np.random.Generator
    ) -> None:
        self._arena, self._layout = arena, layout
        self._blocks = BlockAllocator(arena.size)
        self._keeper = Keeper(futures, max(arena.size - reserve, 0), draw)
        self._offsets = np.full(futures.samples, _NOWHERE, np.int64)
        varies = -1 in layout.input_shape
        self._shapes = np.zeros((futures.samples, len(layout.input_shape)), np.int32) if varies else None
        self._target_dtype, self._item = np.dtype(layout.target_dtype), np.dtype(layout.input_dtype)
        self._new: dict[int, int] = {}  # sample -> bytes, of those of which nothing is decided

    @property
    def used(self) -> int:
        """Bytes of what is kept."""
        return self._keeper.used

    @property
    def nbytes(self) -> int:
        """Memory that the index takes."""
        shapes = 0 if self._shapes is None else self._shapes.nbytes
        return self._keeper.nbytes + self._offsets.nbytes + shapes

    def __len__(self) -> int:
        return len(self._keeper)

    def holds(self, samples: Indices) -> npt.NDArray[np.bool_]:
        """Whether each of these samples is kept, (count,)."""
        return self._keeper.holds(samples)

    def find(self, sample: int) -> Prepared | None:
        """A sample that lies here, or None; valid until the next call of anything here."""
        offset = int(self._offsets[sample])
        if offset == _NOWHERE:
            return None
        shape = self._shape(sample)
        image_bytes = math.prod(shape) * self._item.itemsize
        content = self._arena.read(offset, image_bytes + self._layout.target_bytes)
        image = content[:image_bytes].view(self._item).reshape(shape)
        target = content[image_bytes:]
        return Prepared(image, target.view(self._target_dtype).reshape(self._layout.target_shape))

    def lay(self, sample: int, prepared: Prepared) -> bool:
        """Lay a new sample here for now, and say whether there was room; `choose` says what becomes of it."""
        size = prepared.image.nbytes + prepared.target.nbytes
        offset = self._blocks.take(size)
        if offset is None:
            return False
        try:
            self._arena.write(offset, (prepared.image, prepared.target))
        except OSError:
            self._blocks.give(offset, size)
            raise
        self._offsets[sample] = offset
        if self._shapes is not None:
            self._shapes[sample] = prepared.image.shape
        self._new[sample] = rounded(size)
        return True

    def choose(self) -> Indices:
        """Decide of the new ones; those that go lie here until they are dropped, (any,)."""
        if not self._new:
            return np.empty(0, np.int64)
        new = np.fromiter(self._new, np.int64, len(self._new))
        sizes = np.fromiter(self._new.values(), np.int64, len(self._new))
        self._new.clear()
        choice = self._keeper.choose(new, sizes)
        return np.concatenate([new[~choice.kept], choice.evicted])

    def drop(self, samples: Indices) -> None:
        """Give the room of samples back that `choose` let go."""
        for sample in samples.tolist():
            shape = self._shape(sample)
            size = math.prod(shape) * self._item.itemsize + self._layout.target_bytes
            self._blocks.give(int(self._offsets[sample]), size)
        self._offsets[samples] = _NOWHERE

    def _shape(self, sample: int) -> tuple[int, ...]:
        if self._shapes is None:
            return self._layout.input_shape
        shape: tuple[int, ...] = tuple(self._shapes[sample].tolist())
        return shape

    def relabelled(self, labels: npt.NDArray[np.int64], futures: KnownFutures) -> None:
        """Let sample i have the number labels[i] from now on, in an index of other futures; nothing is undecided."""
        offsets, shapes = self._offsets, self._shapes
        self._offsets = np.full(futures.samples, _NOWHERE, np.int64)
        self._offsets[labels] = offsets
        if shapes is not None:
            self._shapes = np.zeros((futures.samples, shapes.shape[1]), np.int32)
            self._shapes[labels] = shapes
        self._keeper.relabel(labels, futures)


@dataclass(frozen=True)
class StoreBudget:
    """Room for what one preprocessor keeps of one data set.

    Attributes:
        memory: bytes.
        disk: bytes.
        folder: where they lie on a disk.
    """

    memory: int
    disk: int = 0
    folder: str = ""


@dataclass(frozen=True)
class StoreStatistics:
    """Counts of a store's work so far.

    Attributes:
        prepared: samples that were read and prepared.
        found: samples that were there.
        kept: samples that are there now.
        kept_bytes: bytes of these.
    """

    prepared: int = 0
    found: int = 0
    kept: int = 0
    kept_bytes: int = 0


@dataclass(frozen=True)
class Keeping:
    """The samples that a store keeps, and for which ring.

    Attributes:
        writers: preprocessors of the run.
        number: the number of the preprocessor that owns them.
        lanes: how many the ring has.
        largest_portion: samples that it makes for one slot, at most.
    """

    writers: int
    number: int
    lanes: int
    largest_portion: int


class SampleStore:
    """Keeps the samples of one preprocessor within a budget; those that are read soonest, see `Keeper`.

    Args:
        budget: what it may take.
        layout: how prepared samples are laid out; -1 for a side that differs.
        orders: the orders of the data set's epochs.
        samples: n + h, training and held-out samples.
        keeping: whose samples it keeps, and for what.
        tell: called with a sentence where something of the store can't be used; nothing else changes.
        clock: seconds.

    Attributes:
        memory: bytes of it that it may take.
    """

    def __init__(
        self,
        budget: StoreBudget,
        layout: SampleLayout,
        orders: EpochOrders,
        samples: int,
        keeping: Keeping,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.memory = budget.memory
        self._own = OwnedKeys(samples, keeping.writers, keeping.number, orders.blocks)
        self._lanes = LaneFutures(self._own, orders, keeping.lanes)
        self._layout, self._tell, self._clock = layout, tell, clock
        self._largest_portion = keeping.largest_portion
        self._tiers: list[Tier] = []
        self._draw = np.random.Generator(np.random.Philox(key=[keeping.number, int.from_bytes(b"store", "little")]))
        self._add_tier("in memory", budget.memory, MemoryArena)
        self._add_tier("on disk", budget.disk, partial(FileArena, budget.folder))
        self._prepared = self._found = 0

    @property
    def statistics(self) -> StoreStatistics:
        """The work so far."""
        kept, size = sum(map(len, self._tiers)), sum(tier.used for tier in self._tiers)
        return StoreStatistics(self._prepared, self._found, kept, size)

    @property
    def nbytes(self) -> int:
        """Memory of the index."""
        return self._lanes.futures.nbytes + sum(tier.nbytes for tier in self._tiers)

    def open(self, spec: LaneSpec, portions: LanePortions) -> None:
        """A lane begins."""
        labels = self._own.admit(portions.owners)
        if labels is not None:
            futures = self._lanes.renumbered()
            for tier in self._tiers:
                tier.relabelled(labels, futures)
        self._lanes.open(spec, portions.owners)

    def close(self, lane: int) -> None:
        """A lane is closed; another one may go on where it was."""
        self._lanes.close(lane)

    def find(self, key: int) -> Prepared | None:
        """The prepared sample, if it is here; valid until the next call."""
        number = self._own.number_of(key)
        if number is None:
            return None
        for tier in list(self._tiers):
            try:
                found = tier.find(number)
            except OSError as cause:
                self._lose(tier, cause)
                continue
            if found is not None:
                self._found += 1
                return found
        return None

    def holds(self, keys: Indices) -> bool:
        """Say whether all these samples, which are its own, are here."""
        numbers = self._own.numbers(keys)
        here = np.zeros(len(numbers), np.bool_)
        for tier in self._tiers:
            here |= tier.holds(numbers)
        return bool(here.all())

    def offer(self, key: int, prepared: Prepared) -> None:
        """A sample was prepared that was not here; it may be kept."""
        self._prepared += 1
        number = self._own.number_of(key)
        if number is not None and self._tiers and self._fits(prepared):
            self._lay(self._tiers[0], number, prepared)

    def settle(self, lane: int, epoch: int, keys: Indices) -> None:
        """A lane has carried these samples of one epoch: choose what is kept of those that were new."""
        now = self._clock()
        self._lanes.read(lane, epoch, self._own.numbers(keys), now)
        self._lanes.look(now)
        for tier, below in zip(list(self._tiers), [*self._tiers[1:], None]):
            gone = tier.choose()
            if below is not None:
                self._move(tier, below, gone)
            tier.drop(gone)

    def _fits(self, prepared: Prepared) -> bool:
        """Say whether a sample is as the layout says; one that is not is an error, of which the lane will tell."""
        image, sides = prepared.image, self._layout.input_shape
        as_said = all(side in (-1, length) for side, length in zip(sides, image.shape))
        return as_said and image.ndim == len(sides) and image.dtype == self._layout.input_dtype

    def _move(self, tier: Tier, below: Tier, samples: Indices) -> None:
        for sample in samples.tolist():
            prepared = tier.find(sample)
            if prepared is not None and below in self._tiers:
                self._lay(below, sample, prepared)

    def _lay(self, tier: Tier, sample: int, prepared: Prepared) -> None:
        try:
            tier.lay(sample, prepared)
        except OSError as cause:
            self._lose(tier, cause)

    def _lose(self, tier: Tier, cause: OSError) -> None:
        self._tiers.remove(tier)
        self._tell(f"prepared samples are kept in memory alone from here on: {cause}")

    def _add_tier(self, where: str, size: int, make: Callable[[int], MemoryArena | FileArena]) -> None:
        """Keep samples there too, if there is room."""
        if size <= 0:
            return
        reserve = min(self._largest_portion * _largest_bytes(self._layout), size // 4)
        try:
            self._tiers.append(Tier(make(size), reserve, self._layout, self._lanes.futures, self._draw))
        except OSError as cause:
            self._tell(f"no prepared samples are kept {where}, for which {size} bytes were meant: {cause}")


def _largest_bytes(layout: SampleLayout) -> int:
    """Bytes of a prepared sample, where all have as many; of one of 512 pixels square where they differ.

    Of ragged ones, twice those of the mean.
    """
    if layout.mean_bytes is not None:
        return 2 * layout.mean_bytes + layout.target_bytes + 64
    sides = tuple(side if side > 0 else 512 for side in layout.input_shape)
    fixed = SampleLayout(sides, layout.input_dtype, layout.target_shape, layout.target_dtype)
    return fixed.input_bytes + fixed.target_bytes + 64
