"""Which places of a stream are one network's, where it takes a part of the samples: pure arithmetic on orders."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from preprocess.samples.block_order import BlockOrder
from preprocess.samples.order import order_of
from preprocess.samples.part import Indices, Part
from preprocess.samples.substitutes import Mask, mask_of


class MemberOrder:
    """A network's order of each epoch: the stream's, with the samples that are not its own left out.

    Args:
        own: indices of its own samples, at least one, none twice.
        length: n, the samples of the stream's data set.
        seed: the stream's order is drawn from it.
        blocks: the stream's order by blocks; None: its samples are shuffled with all others.

    Attributes:
        samples: m, how many are its own.
    """

    def __init__(self, own: Indices, length: int, seed: int, blocks: BlockOrder | None = None) -> None:
        self.samples = len(own)
        self._is_own = mask_of(own, length)
        self._seed, self._blocks = seed, blocks
        if not self.samples or np.count_nonzero(self._is_own) != self.samples:
            raise ValueError(f"a part of {length} samples has at least one, and none twice")

    @property
    def own(self) -> Mask:
        """Which samples of the data set are its own, (n,)."""
        return self._is_own

    @property
    def length(self) -> int:
        """n, the samples of the stream's data set."""
        return self._is_own.size

    def places(self, epoch: int) -> Indices:
        """Return the places of its samples in the stream's order of an epoch, (m,), ascending."""
        return np.flatnonzero(self._is_own[_order(self.length, self._seed, epoch, self._blocks)])

    def of_epoch(self, epoch: int) -> Indices:
        """Return its samples in its order of an epoch, (m,): indices in the data set."""
        order = _order(self.length, self._seed, epoch, self._blocks)
        return order[self._is_own[order]]

    def padded_places(self, epoch: int, padded: int) -> Indices:
        """Return the places of its order once that is padded from its start again to a length, (padded,), ascending.

        A stream that goes round again has the repeated samples at the places from n on.
        """
        rounds, number = np.divmod(np.arange(padded), self.samples)
        return self.places(epoch)[number] + self.length * rounds

    def tail(self, epoch: int, padded: int) -> int:
        """How far an epoch of the stream must reach into its order again, to have `padded_places` all."""
        if padded <= self.samples:
            return 0
        return int(self.padded_places(epoch, padded)[-1]) + 1 - self.length


@lru_cache(maxsize=32)
def member_order(part: Part, length: int, seed: int, blocks: BlockOrder | None = None) -> MemberOrder:
    """Return the order of a part; those that were asked for last are kept, a byte for each sample of the data set.

    Raises:
        ValueError: the data set has too few samples for the part.
    """
    return MemberOrder(part.train(length), length, seed, blocks)


@lru_cache(maxsize=2)
def _order(length: int, seed: int, epoch: int, blocks: BlockOrder | None) -> Indices:
    """The stream's order; those of the last two epochs are kept."""
    order = order_of(length, seed, epoch, blocks)
    order.flags.writeable = False
    return order
