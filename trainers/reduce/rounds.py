"""The ring of `trainers.reduce.ring` in rounds, for devices: all members send and receive at once, then all add.

A device adds far faster than a network brings, so nothing is gained by adding one segment while the next travels. In
rounds, everything stands on one stream, whose order is all that there is to wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from trainers.reduce.order import home_chunks, ranks_of_fold
from trainers.reduce.own_sum import fold

Exchange = Callable[[Sequence[Tensor], Sequence[Tensor]], None]
"""Sends flat tensors to the trainer before this one, and fills others from the one after it."""


class Rounds:
    """The ordered sum over all virtual ranks, for the trainer that holds `blocks[index]` of them, of two or more."""

    def __init__(self, blocks: Sequence[range], index: int, exchange: Exchange) -> None:
        self._blocks, self._index, self._own = list(blocks), index, blocks[index]
        self._ranks = blocks[-1].stop
        self._exchange = exchange

    @torch.no_grad()
    def sum(self, vectors: Sequence[Tensor], slices: Sequence[slice]) -> None:
        """Leave the sum over all virtual ranks in the first vector.

        vectors: flat tensors of the own ranks, in rank order. slices: where the chunks are, or the same parts of all
        chunks; what else there is stays. Parts of neighbouring chunks that touch travel as one: they must touch on all
        members or on none.
        """
        result, home = vectors[0], home_chunks(self._own, self._ranks)
        for chunk in home:
            first = ranks_of_fold(chunk, self._ranks)[0]
            self._add(vectors, [slices[chunk]], range(first, self._own.start - 1, -1))
        outgoing = home
        for hop in range(1, len(self._blocks)):
            incoming = home_chunks(self._block(hop), self._ranks)
            arrived = self._turn(result, _whole(slices, outgoing), _whole(slices, incoming))
            self._add(vectors, _whole(slices, incoming), self._own[::-1], arrived)
            outgoing = incoming
        leaving, coming = ([slices[chunk] for chunk in chunks[:-1]] for chunks in (outgoing, home))
        arrived = self._turn(result, leaving, coming)
        for chunk, room in zip(home[:-1], arrived):
            self._add(vectors, [slices[chunk]], range(self._own.stop - 1, chunk - 1, -1), [room])
        for hop in range(1, len(self._blocks)):
            there, here = (_whole(slices, self._block(number)) for number in (hop - 1, hop))
            self._exchange([result[where] for where in there], [result[where] for where in here])

    def _block(self, hop: int) -> range:
        return self._blocks[(self._index + hop) % len(self._blocks)]

    def _turn(self, result: Tensor, leaving: Sequence[slice], coming: Sequence[slice]) -> list[Tensor]:
        """Send parts of the result; return what came."""
        rooms = [torch.empty_like(result[where]) for where in coming]
        self._exchange([result[where] for where in leaving], rooms)
        return rooms

    def _add(
        self, vectors: Sequence[Tensor], places: Sequence[slice], ranks: range, arrived: Sequence[Tensor] = ()
    ) -> None:
        """Add own ranks, in this order, to what arrived, or from nothing."""
        for number, where in enumerate(places):
            terms = [vectors[rank - self._own.start][where] for rank in ranks]
            begun = [arrived[number]] if arrived else []
            room = begun[0] if begun else torch.empty_like(terms[0])
            fold([*begun, *terms], vectors[0][where], room)


def _whole(slices: Sequence[slice], chunks: Sequence[int]) -> list[slice]:
    """The parts of a vector that some chunks take; those that touch become one."""
    return list(_joined([slices[chunk] for chunk in chunks]))


def _joined(parts: Sequence[slice]) -> Iterator[slice]:
    begun: slice | None = None
    for part in parts:
        if begun is not None and begun.stop == part.start:
            begun = slice(begun.start, part.stop)
            continue
        if begun is not None:
            yield begun
        begun = part
    if begun is not None:
        yield begun
