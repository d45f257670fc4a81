"""A ring of M trainers that adds what a ring of N virtual workers would, in the same order.

Trainer p holds the consecutive virtual ranks lo .. hi-1. A chunk's fold (see `trainers.reduce.order`) walks down the
ranks, so it crosses each trainer once, except that most folds begin and end inside the same one:

1. p begins the folds of chunks lo+1 .. hi (mod N), down to its rank lo.
2. M-1 hops: each trainer sends the partial chunks that it holds to p-1, receives others from p+1, and adds its ranks.
   After the last hop the final chunk of the packet has met every rank.
3. The packet's other chunks go one hop further, home, where the ranks hi-1 .. c are added.
4. M-1 hops spread the finished chunks: p finished chunks lo .. hi-1.

For S bytes and M > 1 all trainers together send S * (2(M-1) + (N-M)/N), almost a plain ring's 2S(M-1). One trainer
alone (M = 1) folds each chunk from end to end. The result depends on N, never on M.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Protocol

import torch
from torch import Tensor

from trainers.reduce.order import chunks, home_chunks, ranks_of_fold

__all__ = ["Neighbours", "VirtualRing"]


class Neighbours(Protocol):
    """How a trainer reaches the two beside it in the ring."""

    def pass_on(self, outgoing: Tensor, incoming: Tensor) -> None:
        """Send a flat tensor to the previous trainer while filling another from the next one; either may be empty."""


class _Packet:
    """Partial sums of several chunks, end to end in one flat tensor, so that they travel as one message."""

    def __init__(self, chunk_ids: Sequence[int], slices: Sequence[slice], like: Tensor) -> None:
        self.chunk_ids = list(chunk_ids)
        widths = [slices[c].stop - slices[c].start for c in chunk_ids]
        self.flat = like.new_empty(sum(widths))
        self.parts = [self.flat.narrow(0, end - width, width) for end, width in zip(accumulate(widths), widths)]

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        return iter(zip(self.chunk_ids, self.parts))

    def take_last(self) -> tuple[int, Tensor]:
        """Remove the last chunk from the packet and return it."""
        chunk, part = self.chunk_ids.pop(), self.parts.pop()
        self.flat = self.flat.narrow(0, 0, self.flat.numel() - part.numel())
        return chunk, part


class VirtualRing:
    """The ordered sum over all virtual ranks, for the trainer that holds `blocks[index]` of them."""

    def __init__(self, blocks: Sequence[range], index: int, neighbours: Neighbours) -> None:
        """`blocks` are the trainers' consecutive virtual ranks, none empty, together 0 .. N-1."""
        if [rank for block in blocks for rank in block] != list(range(blocks[-1].stop)) or not all(map(len, blocks)):
            raise ValueError(f"blocks {list(blocks)} are not consecutive, non-empty and from virtual rank 0 on")
        self._blocks = list(blocks)
        self._index = index
        self._own = blocks[index]
        self._ranks = blocks[-1].stop
        self._neighbours = neighbours

    def sum(self, vectors: Sequence[Tensor]) -> Tensor:
        """Return the sum over all virtual ranks; `vectors` are the flat tensors of the own ranks, in rank order."""
        slices = chunks(vectors[0].numel(), self._ranks, vectors[0].element_size())
        result = torch.empty_like(vectors[0])
        if len(self._blocks) == 1:
            self._fold_all(result, vectors, slices)
            return result
        packet = self._begin(vectors, slices)
        for hop in range(1, len(self._blocks)):
            packet = self._receive(packet, home_chunks(self._block(hop), self._ranks), slices)
            for chunk, part in packet:
                self._add(part, reversed(self._own), vectors, slices[chunk])
        chunk, part = packet.take_last()
        result[slices[chunk]] = part
        packet = self._receive(packet, home_chunks(self._own, self._ranks)[:-1], slices)
        for chunk, part in packet:
            self._add(part, reversed(range(chunk, self._own.stop)), vectors, slices[chunk])
            result[slices[chunk]] = part
        self._spread(result, slices)
        return result

    def _fold_all(self, result: Tensor, vectors: Sequence[Tensor], slices: Sequence[slice]) -> None:
        for chunk, where in enumerate(slices):
            first, *others = ranks_of_fold(chunk, self._ranks)
            part = result[where].copy_(vectors[first][where])
            self._add(part, others, vectors, where)

    def _block(self, hop: int) -> range:
        return self._blocks[(self._index + hop) % len(self._blocks)]

    def _begin(self, vectors: Sequence[Tensor], slices: Sequence[slice]) -> _Packet:
        packet = _Packet(home_chunks(self._own, self._ranks), slices, vectors[0])
        for chunk, part in packet:
            first = ranks_of_fold(chunk, self._ranks)[0]
            part.copy_(vectors[first - self._own.start][slices[chunk]])
            self._add(part, reversed(range(self._own.start, first)), vectors, slices[chunk])
        return packet

    def _receive(self, outgoing: _Packet, chunk_ids: Sequence[int], slices: Sequence[slice]) -> _Packet:
        incoming = _Packet(chunk_ids, slices, outgoing.flat)
        self._neighbours.pass_on(outgoing.flat, incoming.flat)
        return incoming

    def _add(self, part: Tensor, ranks: Iterable[int], vectors: Sequence[Tensor], where: slice) -> None:
        for rank in ranks:
            part.add_(vectors[rank - self._own.start][where])

    def _spread(self, result: Tensor, slices: Sequence[slice]) -> None:
        for hop in range(len(self._blocks) - 1):
            outgoing, incoming = (self._span(self._block(h), slices) for h in (hop, hop + 1))
            self._neighbours.pass_on(result[outgoing], result[incoming])

    @staticmethod
    def _span(block: range, slices: Sequence[slice]) -> slice:
        return slice(slices[block.start].start, slices[block.stop - 1].stop)
