"""The portion that one maker fills of each slot of a divided lane, and how it travels: as a copy.

A place in the ring is one maker's in this round and another's in the next. That one writes there as soon as this node's
readers have released it, whatever message is still on its way; so the copy is taken before they get the slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from preprocess.ring.ragged_lane import PassedOn, RaggedSlot
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


Block = Array | RaggedSlot | PassedOn
"""Inputs or targets of a slot, and what is on its way past a node."""


def packed(block: Block, rows: Indices | None) -> Array:
    """All bytes of a block of samples, or a copy of some rows'; of ragged ones with their lengths, see `RaggedSlot`."""
    if not isinstance(block, np.ndarray):
        return block.packed(rows)
    whole = block if rows is None else np.ascontiguousarray(block[rows])
    return whole.reshape(-1).view(np.uint8)


def room_for(block: Block, rows: Indices | None) -> Array:
    """Where a block of samples, or some rows of it, is received."""
    if not isinstance(block, np.ndarray):
        return block.room(rows)
    return packed(block, None) if rows is None else np.empty(_size_of(block, rows), np.uint8)


def unpack(received: Array, block: Block, rows: Indices | None) -> None:
    """Put what was received into its rows; it lies there already where it is all of the block."""
    if not isinstance(block, np.ndarray):
        block.unpack(received, rows)
    elif rows is not None:
        block[rows] = received.view(block.dtype).reshape(len(rows), *block.shape[1:])


def empty_like(block: Any) -> Block:
    """Return memory for a block like this one, outside the ring."""
    return PassedOn(block.room(None)) if isinstance(block, RaggedSlot) else np.empty_like(block)


def _size_of(block: Array, rows: Indices | None) -> int:
    """Bytes of a block of samples, or of some rows of it."""
    return block.nbytes if rows is None else len(rows) * block[0].nbytes
