"""Which places of a stream one loader reads: all, or those of its part of the data set's samples."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b

import numpy as np

from preprocess.samples.block_order import BlockOrder
from preprocess.samples.errors import DataSpecError
from preprocess.samples.member import MemberOrder
from preprocess.samples.order import HELD_OUT, order_of
from preprocess.samples.part import Indices, Part
from preprocess.samples.stream import DatasetSpec
from preprocess.samples.substitutes import Mask, mask_of

Places = range | Indices
"""Places of an epoch, ascending."""


class OwnSamples:
    """The samples of one kind that are a loader's own, and where an epoch of the stream has them.

    Args:
        kind: "train" or "held_out".
        seed: the order is drawn from it.
        length, held_out: samples of the data set, at least one of the kind.
        blocks: the stream's order by blocks; None: its samples are shuffled with all others.
        part: which training samples are its own, and which fold of them is held out; None: all. Without a fold all
            held-out samples are its own.

    Attributes:
        count: m, how many are its own.
        mask: which samples of the kind are, (n,) or (h,); None: all.

    Raises:
        DataSpecError: the data set has too few samples for the part.
    """

    def __init__(
        self, kind: str, seed: int, length: int, held_out: int, part: Part | None, blocks: BlockOrder | None = None
    ) -> None:
        self._held_out: Indices | None = None
        self._order: MemberOrder | None = None
        self._stream = length, seed, blocks
        self.mask: Mask | None = None
        self.count = held_out if kind == HELD_OUT else length
        if part is None or (kind == HELD_OUT and part.fold is None):
            return
        try:
            own = part.held_out(length) if kind == HELD_OUT else part.train(length)
        except ValueError as error:
            rule = f"the data set has {length} training samples; {error}"
            raise DataSpecError(_short(part), rule, "mend the part, or name other data") from error
        self.count, self.mask = own.size, mask_of(own, held_out if kind == HELD_OUT else length)
        if kind == HELD_OUT:
            self._held_out = own
        else:
            self._order = MemberOrder(own, length, seed, blocks)

    def places(self, epoch: int, padded: int) -> Places:
        """Return where they lie in an epoch, in its order, padded from its start again to a length, (padded,)."""
        if self._held_out is not None:
            return self._held_out
        return range(padded) if self._order is None else self._order.padded_places(epoch, padded)

    def samples_at(self, epoch: int, places: Indices) -> Indices:
        """Return which samples lie at some places of an epoch, of those that are its own: indices in the data set."""
        if self._held_out is not None:
            return places
        length, seed, blocks = self._stream
        return order_of(length, seed, epoch, blocks)[places % length]

    def tail(self, epoch: int, padded: int) -> int:
        """How far an epoch of the stream must reach into its order again, to have these places all."""
        if self._order is not None:
            return self._order.tail(epoch, padded)
        return max(padded - self.count, 0)


def checked_part(part: Part | None) -> Part | None:
    """Return a part as it is used: its subset an int, or a tuple of ints; None for all samples.

    Raises:
        DataSpecError: it is no part.
    """
    if part is None:
        return None
    if not isinstance(part, Part):
        example = "write Part(subset=..., fold=Fold(index=0, count=5, seed=0), bag=Bag(fraction=0.8, seed=0))"
        raise DataSpecError(part, "a part is a preprocess.Part", example)
    if part.subset is None:
        return None if part == Part() else part
    indices = np.asarray(part.subset)
    if indices.ndim > 1 or not np.issubdtype(indices.dtype, np.integer):
        rule = "a subset is how many of the first samples, or the indices of some"
        raise DataSpecError(part.subset, rule, "write subset=1000, or subset=(3, 17, 44)")
    return replace(part, subset=tuple(indices.tolist()) if indices.ndim else int(indices))


def with_folds(data: DatasetSpec, part: Part | None) -> DatasetSpec:
    """Return what a service makes of data where a fold is held out: each training sample is a held-out one, too.

    Raises:
        DataSpecError: the data have held-out samples of their own.
    """
    if part is None or part.fold is None:
        return data
    if data.held_out is not None and data.held_out.to_json() != data.train.to_json():
        rule = f"each fold is held out in its turn, and the data {data.name!r} have held_out, which all evaluate on"
        raise DataSpecError(part.fold, rule, "take held_out away from the data, or the fold from the part")
    return replace(data, held_out=data.train)


def part_label(part: Part | None) -> str:
    """Return a short name of a part, another for each; empty for all samples."""
    return "" if part is None else blake2b(repr(part).encode(), digest_size=8).hexdigest()


def _short(part: Part) -> Part:
    """The part as an error shows it: of a long subset its first indices."""
    return replace(part, subset=part.subset[:5]) if isinstance(part.subset, tuple) else part
