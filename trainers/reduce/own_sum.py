"""The ordered sum over all virtual workers, by a trainer that has all of them (see `trainers.reduce.order`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from trainers.reduce.order import chunks, ranks_of_fold

_BLOCK = 1 << 17
"""Bytes that are folded at a time on a CPU, so that the sum so far stays in the cache."""
_STACK = 4 << 20
"""Bytes of all vectors together that a CPU surely still has in its cache after it has copied them."""


class OwnSum:
    """The sum of vectors that are all here. They stay as they are but the first, which becomes the sum.

    On a device they lie where they are added, on its current stream, and the others are of no use afterwards.
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._stacks: dict[tuple[int, torch.dtype, int], _Stack] = {}
        self._room = torch.empty(0, dtype=torch.uint8)

    @torch.no_grad()
    def sum(self, vectors: Sequence[Tensor]) -> Tensor:
        """Return the sum of the ranks' flat tensors, which are in rank order: the first of them."""
        first = vectors[0]
        if self._ranks == 2:
            first += vectors[1]  # of two, either order has the same bits
        elif self._ranks > 2 and first.device.type != "cpu":
            fold_in_place(vectors, chunks(first.numel(), self._ranks, first.element_size()))
        elif self._ranks > 2 and self._ranks * first.nbytes <= _STACK:
            self._stack(vectors).sum(vectors)
        elif self._ranks > 2:
            self._fold_all(vectors)
        return first

    def _stack(self, vectors: Sequence[Tensor]) -> _Stack:
        first, whole = vectors[0], vectors[0]._base
        elements, place = first.numel(), 0 if whole is None else first.data_ptr()
        if (found := self._stacks.get((elements, first.dtype, place))) is not None:
            return found
        rows = stack_of(self._ranks, elements, first.dtype)
        if whole is not None and whole.shape == rows.shape and vectors[-1].data_ptr() == whole[-1].data_ptr():
            rows = whole
        else:
            place = 0
        return self._stacks.setdefault((elements, first.dtype, place), _Stack(rows, elements))

    def _fold_all(self, vectors: Sequence[Tensor]) -> None:
        result = vectors[0]
        if self._room.dtype != result.dtype:
            self._room = torch.empty(_BLOCK // result.element_size(), dtype=result.dtype)
        for chunk, whole in enumerate(chunks(result.numel(), self._ranks, result.element_size())):
            ranks = ranks_of_fold(chunk, self._ranks)
            for where in cut(whole, len(self._room)):
                fold([vectors[rank][where] for rank in ranks], result[where], self._room)


class _Stack:
    """Small vectors, which take longer to be cut than to be added: two additions for each rank, none for each chunk.

    Where they lie one under another, what the folds of all chunks add next is a diagonal, one rank down for one chunk
    on. It is one strided view, or two where it leaves the stack at the bottom and goes on at the top.
    """

    def __init__(self, rows: Tensor, elements: int) -> None:
        """rows: see `stack_of`. elements: of each vector."""
        ranks, length = rows.shape
        width = length // ranks
        self._vectors = list(rows[:, :elements])
        self._sums = rows.new_empty((ranks, width))  # a row a chunk
        self._sum = self._sums.view(-1)[:elements]
        self._diagonals = [
            (
                (self._sums[k:], rows.as_strided((ranks - k, width), (length + width, 1), k * width)),
                (self._sums[:k], rows.as_strided((k, width), (length + width, 1), (ranks - k) * length)),
            )
            for k in range(1, ranks + 1)
        ]

    def sum(self, vectors: Sequence[Tensor]) -> None:
        """Leave in the first, for each chunk c, acc = x[c - 1]; for k in 2 .. N: acc = x[c - k] + acc."""
        if vectors[0].data_ptr() != self._vectors[0].data_ptr():
            torch._foreach_copy_(self._vectors, list(vectors))
        first, *rest = self._diagonals
        for sums, terms in first:
            sums.copy_(terms)
        for diagonal in rest:
            for sums, terms in diagonal:
                sums += terms
        vectors[0].copy_(self._sum)


def stack_of(ranks: int, elements: int, dtype: torch.dtype) -> Tensor:
    """Return a row for each rank's vector of so many elements, which `OwnSum` adds where they lie."""
    width = chunks(elements, ranks, dtype.itemsize)[0].stop
    return torch.zeros((ranks, ranks * width), dtype=dtype)  # the last chunks of a vector may be shorter


def cut(whole: slice, width: int) -> Iterator[slice]:
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
