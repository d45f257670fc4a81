"""The part of a data set's training samples that is one network's own, and where a stream has it: pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from preprocess.samples.layout import Indices
from preprocess.samples.order import BlockOrder, Mask, mask_of, order_of

#: Named seed paths: each gives every sample a random word of its own.
_FOLDS, _BAG = "folds", "bag"

_WORD = 2**64


@dataclass(frozen=True)
class Fold:
    """One fold of a cross-validation.

    Attributes:
        index: which fold is held out, from 0.
        count: how many folds there are.
        seed: seeds which sample is in which fold; equal for all folds of one cross-validation.
    """

    index: int
    count: int
    seed: int

    def __post_init__(self) -> None:
        if self.count < 2 or not 0 <= self.index < self.count:
            raise ValueError(f"{self}: there are at least 2 folds, and the index is 0 to count - 1")


@dataclass(frozen=True)
class Bag:
    """A random part, drawn without replacement.

    Attributes:
        fraction: above 0, at most 1; of m samples the bag has fraction * m, rounded, at least one.
        seed: seeds which samples are in it. With one seed a larger bag has all samples of a smaller one.
    """

    fraction: float
    seed: int

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ValueError(f"{self}: the fraction is above 0 and at most 1")


@dataclass(frozen=True)
class Part:
    """The training samples that a network trains on, and those of them that are held out from it.

    The subset is taken first; one fold of what is left is held out; the bag is drawn from the rest.

    Attributes:
        subset: how many of the first samples, or the indices of some; None: all.
        fold: None: nothing is held out.
        bag: None: all.
    """

    subset: int | tuple[int, ...] | None = None
    fold: Fold | None = None
    bag: Bag | None = None

    def train(self, length: int) -> Indices:
        """Return the indices of the samples that it trains on, of `length` in all, ascending.

        Raises:
            ValueError: the data set has too few samples for it.
        """
        is_own = np.zeros(length, np.bool_)
        is_own[self._subset(length)] = True
        is_own[self.held_out(length)] = False
        rest = np.flatnonzero(is_own)
        if self.bag is None:
            return rest
        words = _words(length, self.bag.seed, _BAG)[rest]
        return np.sort(rest[np.argsort(words, kind="stable")[: _bag_size(self.bag, rest.size)]])

    def held_out(self, length: int) -> Indices:
        """Return the indices of the samples of its fold, ascending; empty without a fold. ValueError: see `train`."""
        subset, fold = self._subset(length), self.fold
        if fold is None:
            return np.empty(0, np.int64)
        if subset.size < fold.count:
            raise ValueError(f"{fold.count} folds of {subset.size} samples: some would be empty")
        drawn = subset[np.argsort(_words(length, fold.seed, _FOLDS)[subset], kind="stable")]
        return np.sort(np.array_split(drawn, fold.count)[fold.index])

    def train_count(self, length: int) -> int:
        """Return the number of indices that `train` gives; nothing is drawn."""
        rest = self._subset_size(length) - self.held_out_count(length)
        return rest if self.bag is None else _bag_size(self.bag, rest)

    def held_out_count(self, length: int) -> int:
        """Return the number of indices that `held_out` gives; nothing is drawn."""
        if self.fold is None:
            return 0
        each, more = divmod(self._subset_size(length), self.fold.count)
        return each + (self.fold.index < more)

    def _subset_size(self, length: int) -> int:
        if self.subset is None:
            return length
        return self.subset if isinstance(self.subset, int) else len(self.subset)

    def _subset(self, length: int) -> Indices:
        if self.subset is None or isinstance(self.subset, int):
            chosen = np.arange(self._subset_size(length), dtype=np.int64)
        else:
            chosen = np.unique(np.array(self.subset, np.int64))
        if not chosen.size or chosen.size != self._subset_size(length) or chosen[0] < 0 or chosen[-1] >= length:
            raise ValueError(f"a subset has at least one sample, none twice, and all of 0 to {length - 1}")
        return chosen


def _bag_size(bag: Bag, samples: int) -> int:
    return max(1, round(bag.fraction * samples))


def _words(length: int, seed: int, path: str) -> npt.NDArray[np.uint64]:
    """Return a random word for each sample; Philox's words, which no version of NumPy changes."""
    name = int.from_bytes(blake2b(f"preprocess/{path}".encode(), digest_size=8).digest(), "little")
    words: npt.NDArray[np.uint64] = np.random.Philox(key=np.array([seed % _WORD, name], np.uint64)).random_raw(length)
    return words


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
        """Mask of its own samples among those of the data set, (n,)."""
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
        """Return how far an epoch of the stream must reach into its order again, to have all `padded_places`."""
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
