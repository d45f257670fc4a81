"""What one maker fills of each slot of a divided lane, and how it travels: without a copy, as MPI's indexed blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from preprocess.samples.layout import Array
from preprocess.samples.owners import Indices, LaneParts

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclass(frozen=True)
class MakerPart:
    """One maker's rows of the slots of a lane."""

    parts: LaneParts
    maker: int

    def rows(self, sequence: int) -> Indices | None:
        """The rows of a slot, ascending; None past the end of the lane, where only its end can come."""
        return None if self.parts.is_past_end(sequence) else self.parts.rows(self.maker, sequence)


def begin(call: Callable[[Any, int, int], MPI.Request], block: Array, rows: Indices | None, rank: int, tag: int) -> Any:
    """Send, or receive, all bytes of a block of samples, or those of some rows, at least one.

    Args:
        call: a nonblocking call of a communicator, such as `Irecv`.
        block: (samples, ...), C-contiguous.
        rows: ascending; None: all.
        rank, tag: of the other side.

    Returns:
        the request.
    """
    whole = block.reshape(-1).view(np.uint8)
    if rows is None:
        return call(whole, rank, tag)
    from mpi4py import MPI

    row = block[0].nbytes
    chosen = MPI.BYTE.Create_hindexed_block(row, (rows * row).tolist()).Commit()
    try:
        return call([whole, 1, chosen], rank, tag)
    finally:
        chosen.Free()  # MPI keeps it until the message is through (MPI-4.1, 5.1.9)


def size_of(block: Array, rows: Indices | None) -> int:
    """Bytes of a block of samples, or of some rows of it."""
    return block.nbytes if rows is None else len(rows) * block[0].nbytes
