"""The portion that one maker fills of each slot of a divided lane, and how it travels: as a copy.

A place in the ring is one maker's in this round and another's in the next. That one writes there as soon as this node's
readers have released it, whatever message is still on its way; so the copy is taken before they get the slot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from preprocess.samples.layout import Array
from preprocess.samples.owners import Indices, LanePortions


@dataclass(frozen=True)
class MakerPortion:
    """One maker's rows of the slots of a lane."""

    portions: LanePortions
    maker: int

    def rows(self, sequence: int) -> Indices | None:
        """The rows of a slot, ascending; None past the end of the lane, where only its end can come."""
        return None if self.portions.is_past_end(sequence) else self.portions.rows(self.maker, sequence)


def packed(block: Array, rows: Indices | None) -> Array:
    """All bytes of a block of samples, or a copy of some rows'."""
    whole = block if rows is None else np.ascontiguousarray(block[rows])
    return whole.reshape(-1).view(np.uint8)


def room_for(block: Array, rows: Indices | None) -> Array:
    """Where a block of samples, or some rows of it, is received."""
    return packed(block, None) if rows is None else np.empty(size_of(block, rows), np.uint8)


def unpack(received: Array, block: Array, rows: Indices | None) -> None:
    """Put what was received into its rows; it lies there already where it is all of the block."""
    if rows is not None:
        block[rows] = received.view(block.dtype).reshape(len(rows), *block.shape[1:])


def size_of(block: Array, rows: Indices | None) -> int:
    """Bytes of a block of samples, or of some rows of it."""
    return block.nbytes if rows is None else len(rows) * block[0].nbytes
