"""What a preprocessor keeps of a data set: its samples after the transforms that draw nothing.

All lanes use it, whatever their seeds and epochs: what comes after, a random crop or flip, is done for each anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from preprocess.samples.layout import SampleLayout
from preprocess.samples.order import EpochOrders
from preprocess.samples.owners import Indices, LanePortions
from preprocess.samples.stream import LaneSpec
from preprocess.store.arena import FileArena, MemoryArena
from preprocess.store.lane_futures import LaneFutures
from preprocess.store.own_samples import OwnKeys
from preprocess.store.tier import Prepared, Tier


@dataclass(frozen=True)
class StoreBudget:
    """What one preprocessor may keep of one data set.

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
    """What a store has done so far.

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
    """What a store keeps: whose samples, and for what.

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
        self._own = OwnKeys(samples, keeping.writers, keeping.number, orders.blocks)
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
