"""The order of addition: gloo's own sums, and the virtual ring on any split."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.trainers.programs.cases import VECTOR_SIZES, vector
from trainers import blocks_of
from trainers.reduce.ordered_reduce import LocalSum, VirtualRing, chunks, ranks_of_fold


class Message:
    """A tensor that was put into a queue, or a place that waits for one."""

    def __init__(self, mail: queue.Queue[Tensor], place: Tensor | None = None) -> None:
        self._mail, self._place = mail, place

    @property
    def done(self) -> bool:
        return self._place is None

    def finish(self) -> None:
        if self._place is not None:
            self._place.copy_(self._mail.get(timeout=30))
            self._place = None


class Link:
    """One member's place in a ring of threads: what it sends, the previous one receives."""

    def __init__(self, mail: list[queue.Queue[Tensor]], index: int) -> None:
        self._mail, self._index = mail, index
        self.sent = 0

    def send(self, outgoing: Tensor) -> Message:
        self.sent += 1
        self._mail[self._index - 1].put(outgoing.clone())
        return Message(self._mail[self._index - 1])

    def receive(self, incoming: Tensor) -> Message:
        return Message(self._mail[self._index], incoming)

    def wait(self, pending: Sequence[Any]) -> None:
        for message in pending:
            message.finish()


def links(members: int) -> list[Link]:
    mail: list[queue.Queue[Tensor]] = [queue.Queue() for _ in range(members)]
    return [Link(mail, index) for index in range(members)]


def on_threads(blocks: list[range], vectors: list[Tensor], joined: list[Link] | None = None) -> list[Tensor]:
    """Every member's result of the virtual ring."""
    neighbours, results = joined or links(len(blocks)), [torch.empty(0)] * len(blocks)

    def member(index: int) -> None:
        own = [vectors[rank].clone() for rank in blocks[index]]
        results[index] = VirtualRing(blocks, index, neighbours[index]).sum(own)

    threads = [threading.Thread(target=member, args=(index,)) for index in range(len(blocks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def folded(vectors: list[Tensor]) -> Tensor:
    """The definition: each chunk folded in its order, element by element."""
    result = torch.empty_like(vectors[0])
    for chunk, where in enumerate(chunks(vectors[0].numel(), len(vectors), vectors[0].element_size())):
        first, *rest = ranks_of_fold(chunk, len(vectors))
        total = vectors[first][where]
        for rank in rest:
            total = vectors[rank][where] + total
        result[where] = total
    return result


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("size", VECTOR_SIZES)
def test_sums_are_gloos(ranks: int, size: int, stock_ddp: Path) -> None:
    vectors = [vector(size, rank) for rank in range(ranks)]
    total = VirtualRing([range(ranks)], 0, links(1)[0]).sum(vectors)
    assert total.numpy().tobytes() == np.load(stock_ddp / f"sum-{ranks}-{size}.npy").tobytes()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=5), st.integers(1, 200), st.sampled_from(["float32", "float64"])
)
def test_the_split_does_not_change_a_bit(sizes: list[int], elements: int, dtype: str) -> None:
    stops = np.cumsum(sizes).tolist()
    blocks = [range(stop - size, stop) for size, stop in zip(sizes, stops)]
    vectors = [vector(elements, rank).to(getattr(torch, dtype)) for rank in range(stops[-1])]
    wanted = folded(vectors).numpy().tobytes()
    assert [result.numpy().tobytes() for result in on_threads(blocks, vectors)] == [wanted] * len(blocks)


@given(st.integers(1, 3_000_000), st.integers(1, 16), st.sampled_from([2, 4, 8]))
def test_chunks_cover_the_vector_in_order(elements: int, ranks: int, element_size: int) -> None:
    slices = chunks(elements, ranks, element_size)
    assert len(slices) == ranks
    assert [slices[0].start, *(s.stop for s in slices)] == [*(s.start for s in slices), elements]


def test_the_sum_takes_the_place_of_the_first_vector() -> None:
    vectors = [vector(50, rank) for rank in range(3)]
    total = VirtualRing([range(3)], 0, links(1)[0]).sum(vectors)
    assert total is vectors[0] and torch.equal(total, folded([vector(50, rank) for rank in range(3)]))
    assert all(torch.equal(vectors[rank], vector(50, rank)) for rank in (1, 2))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 8),
    st.integers(1, 5),
    st.integers(1, 400),
    st.sampled_from([16, 64, 1 << 20]),
    st.sampled_from([16, 300, 1 << 20]),
)
def test_the_size_of_segments_does_not_change_a_sum(
    ranks: int, members: int, elements: int, segment: int, together: int
) -> None:
    vectors = [vector(elements, rank) for rank in range(ranks)]
    blocks = blocks_of(ranks, min(members, ranks))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainers.reduce.ordered_reduce._SEGMENT", segment)
        patch.setattr("trainers.reduce.ordered_reduce._TOGETHER", together)
        results = on_threads(blocks, vectors)
    assert all(torch.equal(result, folded(vectors)) for result in results)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 9),
    st.integers(1, 400),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    st.sampled_from([16, 64, 1 << 20]),
    st.sampled_from([0, 2000, 1 << 20]),
)
def test_a_trainer_that_has_all_workers_adds_in_their_order(
    ranks: int, elements: int, dtype: torch.dtype, block: int, stack: int
) -> None:
    vectors = [vector(elements, rank).to(dtype) for rank in range(ranks)]
    own = LocalSum(ranks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainers.reduce.ordered_reduce._BLOCK", block)
        patch.setattr("trainers.reduce.ordered_reduce._STACK", stack)
        for _ in range(2):  # the second in the same memory
            given = [vector.clone() for vector in vectors]
            assert torch.equal(own.sum(given), folded(vectors))
            assert all(torch.equal(one, other) for one, other in zip(given[1:], vectors[1:]))


def test_small_chunks_travel_together() -> None:
    """Two trainers send each other what is begun, its last chunk apart, what goes home, and what is finished."""
    vectors = [vector(400, rank) for rank in range(16)]
    blocks, joined = blocks_of(16, 2), links(2)
    assert torch.equal(on_threads(blocks, vectors, joined)[0], folded(vectors))
    assert [link.sent for link in joined] == [5, 5]


def test_gaps_between_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="not consecutive"):
        VirtualRing([range(2), range(3, 4)], 0, links(2)[0])
