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

Chunks travel in segments: while one is added, the next is under way. Small ones that follow one another in a vector
travel as one, the last of a packet apart, as it parts from the others. Sums replace the vector of the lowest own rank.
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
from trainers.reduce.own_sum import OwnSum, cut, fold

_SEGMENT = 4 << 20
"""Bytes of a message: few enough that one is added while the next travels, enough that its price does not count, also
where ranks share a core and each message costs a turn on it."""
_TOGETHER = 1 << 18
"""Bytes of chunks that travel as one: a message costs about as much as the addition of so many."""
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

    where: its elements. terms: the own ranks that it meets, in this order, and which of its elements; none if it is
        finished.
    leaves: whether it is sent on.
    """

    where: slice
    terms: Sequence[tuple[int, slice]]
    leaves: bool


@dataclass(frozen=True)
class _Plan:
    """What one trainer does with vectors of one length and type.

    slices: the chunks. beginnings: the segments whose folds begin here, and the chunks in each. course: what comes from
    the next trainer. rooms: where it lands. room: takes sums on the way.
    """

    slices: Sequence[slice]
    beginnings: Sequence[tuple[slice, range]]
    course: Sequence[_Arrival]
    rooms: Sequence[Tensor]
    room: Tensor


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
        self._alone = OwnSum(self._ranks)
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._plans: dict[tuple[int, torch.dtype], _Plan] = {}

    @torch.no_grad()
    def sum(self, vectors: Sequence[Tensor]) -> Tensor:
        """Return the sum over all virtual ranks.

        vectors: the flat tensors of the own ranks, in rank order; on the CPU, or for a trainer alone on any device (see
        `OwnSum`). The sum takes the place of the first. The others stay as they are on the CPU.
        """
        if len(self._blocks) == 1:
            return self._alone.sum(vectors)
        self._go_round(vectors, self._plan(vectors[0]))
        return vectors[0]

    def _go_round(self, vectors: Sequence[Tensor], plan: _Plan) -> None:
        result, first = vectors[0], self._own.start
        sent = _Sent(self._neighbours)
        arrivals = _Arrivals(plan, result, sent, self._neighbours)
        arrivals.invite()
        for where, run in plan.beginnings:
            self._begin(vectors, plan.slices, where, run, plan.room)
            sent.send(where, result[where])
        for arrival, segment in arrivals:
            if arrival.terms:
                sent.free(arrival.where)
                terms = [(vectors[rank - first][part], part) for rank, part in arrival.terms]
                _add(segment, arrival.where, terms, result[arrival.where])
            if arrival.leaves:
                sent.send(arrival.where, result[arrival.where])
        sent.finish()

    def _plan(self, like: Tensor) -> _Plan:
        """Return what to do with such vectors; to work it out takes as long as to send a small one."""
        key = (like.numel(), like.dtype)
        if key not in self._plans:
            size = like.element_size()
            segments = _Segments(chunks(like.numel(), self._ranks, size), size)
            if not self._memory.numel():
                self._memory = torch.empty(_SEGMENT * (_AHEAD + 1), dtype=torch.uint8)
            *rooms, room = self._memory.view(like.dtype).split(_SEGMENT // size)
            begun, course = list(self._packet(0, segments)), list(self._course(segments))
            self._plans[key] = _Plan(segments.slices, begun, course, rooms, room)
        return self._plans[key]

    def _begin(
        self, vectors: Sequence[Tensor], slices: Sequence[slice], where: slice, run: range, room: Tensor
    ) -> None:
        """Begin the folds of chunks: that of chunk c at rank c - 1, and down to the lowest own rank."""
        lowest, result = self._own.start, vectors[0]
        if len(run) == 1:
            own = range(ranks_of_fold(run[0], self._ranks)[0], lowest - 1, -1)
            fold([vectors[rank - lowest][where] for rank in own], result[where], room)
            return
        for rank in range(run[-1] - 1, lowest, -1):
            if rank + 1 in run:
                begun = slices[rank + 1]
                room[_within(begun, where)] = vectors[rank - lowest][begun]
            if rank + 2 <= run[-1]:
                others = slice(slices[max(run[0], rank + 2)].start, where.stop)
                room[_within(others, where)] += vectors[rank - lowest][others]
        others = slice(slices[max(run[0], lowest + 2)].start, where.stop)  # of chunk lowest + 1, it is the only one
        result[others] += room[_within(others, where)]

    def _course(self, segments: _Segments) -> Iterator[_Arrival]:
        """Give what comes from the next trainer, in its order, which is that in which this one sends."""
        hops = range(1, len(self._blocks))
        for hop in hops:
            for where, _ in self._packet(hop, segments):
                yield _Arrival(where, [(rank, where) for rank in self._own[::-1]], leaves=True)
        for where, run in segments.of(self._own[1:]):
            ranks = range(self._own.stop - 1, run[0] - 1, -1)  # chunk c meets those down to rank c
            parts = (slice(where.start, min(where.stop, segments.slices[rank].stop)) for rank in ranks)
            yield _Arrival(where, list(zip(ranks, parts)), leaves=True)
        for hop in hops:
            block = self._block(hop)
            for where, _ in (*segments.of(block[:1]), *segments.of(block[1:])):
                yield _Arrival(where, (), leaves=hop != hops[-1])

    def _packet(self, hop: int, segments: _Segments) -> Iterator[tuple[slice, range]]:
        """Give the segments whose folds begin `hop` trainers on, and their chunks; the last ends where others go on."""
        block = self._block(hop)
        last = home_chunks(block, self._ranks)[-1]
        yield from segments.of(block[1:])
        yield from segments.of(range(last, last + 1))

    def _block(self, hop: int) -> range:
        return self._blocks[(self._index + hop) % len(self._blocks)]


@dataclass(frozen=True)
class _Segments:
    """How the chunks of a vector travel.

    slices: the chunks. element_size: bytes.
    """

    slices: Sequence[slice]
    element_size: int

    def of(self, chosen: range) -> Iterator[tuple[slice, range]]:
        """Give the segments of consecutive chunks, and which chunks are in each: pieces of one, or several."""
        together = max(1, min(_TOGETHER, _SEGMENT) // max(1, self.slices[0].stop * self.element_size))
        for start in range(chosen.start, chosen.stop, together):
            run = range(start, min(start + together, chosen.stop))
            whole = slice(self.slices[run[0]].start, self.slices[run[-1]].stop)
            for where in cut(whole, _SEGMENT // self.element_size):
                yield where, run


def _within(part: slice, whole: slice) -> slice:
    """Return where a part is in a tensor of the whole."""
    return slice(part.start - whole.start, part.stop - whole.start)


def _add(segment: Tensor, where: slice, terms: Sequence[tuple[Tensor, slice]], result: Tensor) -> None:
    """Add terms to the segment that lies at `where`, each to its part, and leave the sum in `result`."""
    if all(part == where for _, part in terms):
        fold([segment, *(term for term, _ in terms)], result, segment)
        return
    for term, part in terms:
        segment[_within(part, where)] += term
    result.copy_(segment)


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

    def __init__(self, plan: _Plan, result: Tensor, sent: _Sent, neighbours: Neighbours) -> None:
        self._course, self._rooms = plan.course, plan.rooms
        self._result = result
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
            where, terms = self._course[self._begun].where, self._course[self._begun].terms
            if not terms and not self._sent.is_free(where):
                return  # the previous trainer has yet to take what its place holds
            room = self._rooms[self._begun % len(self._rooms)][: where.stop - where.start]
            segment = room if terms else self._result[where]
            self._landing.append((segment, self._neighbours.receive(segment)))
            self._begun += 1
