"""Whose a sample is: where preprocessors keep what they have prepared, one of them alone prepares each sample.

So nobody else reads, keeps or evicts it, and all nodes together keep it once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from preprocess.samples.block_order import BlockOrder
from preprocess.samples.itinerary import Itinerary
from preprocess.samples.order import TRAIN, EpochOrders
from preprocess.samples.stream import LaneSpec

Indices = npt.NDArray[np.int64]

_KEPT_SLOTS = 64


def sample_keys(itinerary: Itinerary, orders: EpochOrders, seed: int, start: int, stop: int) -> Indices:
    """The keys of the samples at the lane positions start to stop - 1: x of training sample x, n + y of held-out y."""
    keys = []
    for span in itinerary.spans(start, stop):
        places = np.arange(span.start, span.start + span.count)
        is_train = span.kind == TRAIN
        keys.append(orders.of(seed, span.epoch)[places % orders.length] if is_train else orders.length + places)
    return np.concatenate(keys).astype(np.int64, copy=False) if keys else np.empty(0, np.int64)


def epoch_keys(itinerary: Itinerary, orders: EpochOrders, seed: int, epoch: int) -> Indices:
    """The keys of the samples of an epoch, each once, in the order in which they are first read."""
    order = orders.of(seed, epoch)
    return np.concatenate([order, np.arange(orders.length, orders.length + itinerary.held_out)])


class SampleOwners:
    """Who owns which sample: sample x is preprocessor x mod W's, where that one is a maker, else another's.

    So a maker that is lost, or rests, changes nothing for the samples of the others. Where the order goes by blocks,
    all samples of a block have one owner: that of its stratum, or of a block of held-out samples.

    Args:
        writers: W, preprocessors of the run.
        makers: who fills the lane.
        blocks: the order by blocks; None: there is none.
    """

    def __init__(self, writers: int, makers: Sequence[int], blocks: BlockOrder | None = None) -> None:
        self._writers, self._blocks = writers, blocks
        self._makers = np.array(makers or range(writers), np.int64)
        self._at_home = np.zeros(writers, np.bool_)
        self._at_home[self._makers] = True

    def of(self, keys: Indices) -> Indices:
        """The owner of each sample, by its key, (count,)."""
        keys = keys if self._blocks is None else _by_blocks(keys, self._blocks)
        homes = keys % self._writers
        others = self._makers[keys // self._writers % len(self._makers)]
        return np.where(self._at_home[homes], homes, others)

    def stands_in(self, maker: int) -> bool:
        """Say whether a maker owns samples of one that makes none here."""
        return maker in self._makers.tolist() and not bool(self._at_home.all())


def _by_blocks(keys: Indices, blocks: BlockOrder) -> Indices:
    """What ownership goes by: the stratum of training samples, the block of held-out ones."""
    held_out = np.maximum(keys - blocks.length, 0)
    return np.where(keys < blocks.length, blocks.strata_of(keys), blocks.held_out_blocks_of(held_out))


class LanePortions:
    """Which rows of each slot of a divided lane are whose: a pure function of what the lane carries.

    Args:
        spec: the lane.
        slot_samples: samples of a slot.
        writers: preprocessors of the run.
        orders: the orders of the data set's epochs.
    """

    def __init__(self, spec: LaneSpec, slot_samples: int, writers: int, orders: EpochOrders) -> None:
        self.owners = SampleOwners(writers, spec.makers, orders.blocks)
        self._spec, self._size, self._orders = spec, slot_samples, orders
        self._slots: OrderedDict[int, tuple[Indices, Indices]] = OrderedDict()

    def rows(self, maker: int, sequence: int) -> Indices:
        """The rows of a slot that a maker fills, ascending, (any,)."""
        return np.flatnonzero(self._slot(sequence)[1] == maker)

    def portion(self, maker: int, sequence: int) -> tuple[Indices, Indices]:
        """The rows of a slot that a maker fills, and the keys of its samples there, (any,) each."""
        keys, owners = self._slot(sequence)
        rows = np.flatnonzero(owners == maker)
        return rows, keys[rows]

    def is_past_end(self, sequence: int) -> bool:
        """Say whether the lane ends before this slot."""
        end = self._spec.itinerary.end
        return end is not None and sequence * self._size >= end

    def _slot(self, sequence: int) -> tuple[Indices, Indices]:
        """(keys, owners) of a slot's samples; the last ones asked for are kept, as makers ask one after the other."""
        if sequence not in self._slots:
            start, spec = sequence * self._size, self._spec
            keys = sample_keys(spec.itinerary, self._orders, spec.stream.seed, start, start + self._size)
            self._slots[sequence] = keys, self.owners.of(keys)
            if len(self._slots) > _KEPT_SLOTS:
                self._slots.popitem(last=False)
        return self._slots[sequence]
