"""A ring of M trainers that adds what a ring of N virtual workers would, in the same order.

Trainer p holds the consecutive virtual ranks lo .. hi-1. A chunk's fold (see `trainers.reduce.order`) walks down the
ranks, so it crosses each trainer once, except that most folds begin and end inside the same one:

1. p begins the folds of chunks lo+1 .. hi (mod N), down to its rank lo, and sends them to p-1.
2. M-1 hops: each trainer receives partial chunks from p+1, adds its ranks and sends them on to p-1. At the last hop
   the packet's final chunk has met every rank and stays.
3. The packet's other chunks go one hop further, home, where the ranks hi-1 .. c are added.
4. M-1 hops spread the finished chunks: p finished chunks lo .. hi-1.

For S bytes and M > 1 all trainers together send S * (2(M-1) + (N-M)/N), almost a plain ring's 2S(M-1). One trainer
alone (M = 1) folds each chunk from end to end. The result depends on N, never on M.

Chunks travel in segments: while one is added, the next is under way. Sums replace the vector of the lowest own rank.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from trainers.messages.transport import Pending
from trainers.reduce.order import chunks, home_chunks, ranks_of_fold

_SEGMENT = 4 << 20
"""Bytes of a message: few enough that one is added while the next travels, enough that its price does not count, also
where ranks share a core and each message costs a turn on it."""
_BLOCK = 1 << 17
"""Bytes that one trainer alone folds at a time on a CPU, so that the sum so far stays in the cache."""
_AHEAD = 3
"""Segments that may be under way to this trainer."""


class Neighbours(Protocol):
    """How a trainer reaches the two beside it in the ring."""

    def send(self, outgoing: Tensor) -> Pending:
        """Begin to send a flat tensor, not empty, to the previous trainer."""

    def receive(self, incoming: Tensor) -> Pending:
        """Begin to fill a flat tensor, not empty, from the next trainer."""

    def wait(self, pending: Sequence[Pending]) -> None:
        """Return once all are complete."""


@dataclass(frozen=True)
class _Arrival:
    """A segment that comes from the next trainer.

    where: its elements. ranks: the own ranks that it meets, in this order; none if it is finished.
    leaves: whether it is sent on.
    """

    where: slice
    ranks: Sequence[int]
    leaves: bool


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
        self._memory = torch.empty(0, dtype=torch.uint8)

    @torch.no_grad()
    def sum(self, vectors: Sequence[Tensor]) -> Tensor:
        """Return the sum over all virtual ranks.

        vectors: the flat tensors of the own ranks, in rank order; on the CPU, or for a trainer alone on any device,
        which adds them on its current stream. The sum takes the place of the first. The others stay as they are on the
        CPU; on a device they are of no use afterwards.
        """
        slices = chunks(vectors[0].numel(), self._ranks, vectors[0].element_size())
        if len(self._blocks) == 1 and self._ranks > 2 and vectors[0].device.type != "cpu":
            fold_in_place(vectors, slices)
        elif len(self._blocks) == 1:
            self._fold_all(vectors, slices)
        else:
            self._go_round(vectors, slices)
        return vectors[0]

    def _fold_all(self, vectors: Sequence[Tensor], slices: Sequence[slice]) -> None:
        result = vectors[0]
        width = _BLOCK // result.element_size() if result.device.type == "cpu" else slices[0].stop or 1
        (room,) = self._rooms(result, width * result.element_size(), 1)
        for chunk, whole in enumerate(slices):
            ranks = ranks_of_fold(chunk, self._ranks)
            for where in _cut(whole, width):
                fold([vectors[rank][where] for rank in ranks], result[where], room)

    def _go_round(self, vectors: Sequence[Tensor], slices: Sequence[slice]) -> None:
        result = vectors[0]
        width = _SEGMENT // result.element_size()
        *rooms, room = self._rooms(result, _SEGMENT, _AHEAD + 1)
        sent = _Sent(self._neighbours)
        arrivals = _Arrivals(list(self._course(slices, width)), result, rooms, sent, self._neighbours)
        arrivals.invite()
        for where, ranks in self._beginnings(slices, width):
            fold([vectors[rank - self._own.start][where] for rank in ranks], result[where], room)
            sent.send(where, result[where])
        for arrival, segment in arrivals:
            if arrival.ranks:
                sent.free(arrival.where)
                own = [vectors[rank - self._own.start][arrival.where] for rank in arrival.ranks]
                fold([segment, *own], result[arrival.where], segment)
            if arrival.leaves:
                sent.send(arrival.where, result[arrival.where])
        sent.finish()

    def _beginnings(self, slices: Sequence[slice], width: int) -> Iterator[tuple[slice, Sequence[int]]]:
        """Give the segments whose folds begin here, and the own ranks that they meet."""
        for chunk in home_chunks(self._own, self._ranks):
            first = ranks_of_fold(chunk, self._ranks)[0]
            for where in _cut(slices[chunk], width):
                yield where, range(first, self._own.start - 1, -1)

    def _course(self, slices: Sequence[slice], width: int) -> Iterator[_Arrival]:
        """Give what comes from the next trainer, in its order, which is that in which this one sends."""
        hops = range(1, len(self._blocks))
        for hop in hops:
            for chunk in home_chunks(self._block(hop), self._ranks):
                for where in _cut(slices[chunk], width):
                    yield _Arrival(where, self._own[::-1], leaves=True)
        for chunk in home_chunks(self._own, self._ranks)[:-1]:
            for where in _cut(slices[chunk], width):
                yield _Arrival(where, range(self._own.stop - 1, chunk - 1, -1), leaves=True)
        for hop in hops:
            for chunk in self._block(hop):
                for where in _cut(slices[chunk], width):
                    yield _Arrival(where, (), leaves=hop != hops[-1])

    def _block(self, hop: int) -> range:
        return self._blocks[(self._index + hop) % len(self._blocks)]

    def _rooms(self, like: Tensor, size: int, count: int) -> Sequence[Tensor]:
        """Return `count` vectors of `size` bytes, in the same memory each time."""
        if self._memory.numel() < size * count or self._memory.device != like.device:
            self._memory = torch.empty(size * count, dtype=torch.uint8, device=like.device)
        return self._memory[: size * count].view(like.dtype).split(size // like.element_size())


class _Sent:
    """Segments that are on their way to the previous trainer: their memory must stay as it is for so long."""

    def __init__(self, neighbours: Neighbours) -> None:
        self._neighbours = neighbours
        self._pending: dict[int, Pending] = {}

    def send(self, where: slice, segment: Tensor) -> None:
        self._pending[where.start] = self._neighbours.send(segment)

    def is_free(self, where: slice) -> bool:
        return where.start not in self._pending or self._pending[where.start].done

    def free(self, where: slice) -> None:
        """Wait until a segment's memory may be written."""
        if where.start in self._pending:
            self._neighbours.wait([self._pending.pop(where.start)])

    def finish(self) -> None:
        self._neighbours.wait(list(self._pending.values()))


class _Arrivals:
    """Gives (arrival, where it landed), with the next ones already under way: finished ones land in the result."""

    def __init__(
        self, course: list[_Arrival], result: Tensor, rooms: Sequence[Tensor], sent: _Sent, neighbours: Neighbours
    ) -> None:
        self._course = course
        self._result = result
        self._rooms = rooms
        self._sent = sent
        self._neighbours = neighbours
        self._landing: deque[tuple[Tensor, Pending]] = deque()
        self._begun = 0

    def __iter__(self) -> Iterator[tuple[_Arrival, Tensor]]:
        for arrival in self._course:
            if not self._landing:
                self._sent.free(self._course[self._begun].where)
            self.invite()
            segment, pending = self._landing.popleft()
            self._neighbours.wait([pending])
            yield arrival, segment

    def invite(self) -> None:
        """Begin to receive as many as there is room for."""
        while self._begun < len(self._course) and len(self._landing) < len(self._rooms):
            where, ranks = self._course[self._begun].where, self._course[self._begun].ranks
            if not ranks and not self._sent.is_free(where):
                return  # the previous trainer has yet to take what its place holds
            room = self._rooms[self._begun % len(self._rooms)][: where.stop - where.start]
            segment = room if ranks else self._result[where]
            self._landing.append((segment, self._neighbours.receive(segment)))
            self._begun += 1


def _cut(whole: slice, width: int) -> Iterator[slice]:
    """Give the pieces of at most `width` elements of a slice."""
    for start in range(whole.start, whole.stop, width):
        yield slice(start, min(start + width, whole.stop))


def fold(terms: Sequence[Tensor], result: Tensor, room: Tensor) -> None:
    """Leave terms[0] + terms[1] + ..., added from left to right, in `result`, which may be one of them.

    room: takes sums on the way; may be terms[0].
    """
    total = terms[0]
    for term in terms[1:-1]:
        total = torch.add(total, term, out=room[: len(result)])
    if len(terms) > 1:
        torch.add(total, terms[-1], out=result)


def fold_in_place(vectors: Sequence[Tensor], slices: Sequence[slice]) -> None:
    """Leave the sum over all ranks' vectors in the first, all chunks at a time: a kernel for each rank, not each chunk.

    Each chunk's sum grows where its fold begins, in the vectors of the ranks, which hold nothing of use afterwards.
    """
    parts = [vector.split([where.stop - where.start for where in slices]) for vector in vectors]
    chosen = [chunk for chunk, part in enumerate(parts[0]) if part.numel()]
    orders = zip(*(ranks_of_fold(chunk, len(vectors)) for chunk in chosen))
    totals, *rest = ([parts[rank][chunk] for rank, chunk in zip(ranks, chosen)] for ranks in orders)
    for terms in rest:
        torch._foreach_add_(totals, terms)
    torch._foreach_copy_([parts[0][chunk] for chunk in chosen], totals)
