"""The ring in rounds: bit for bit the ring's sums, for every way to deal out the virtual workers."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import pytest
import torch
from torch import Tensor

from trainers import Group
from trainers.messages.group import blocks_of
from trainers.reduce import device_reduce
from trainers.reduce.device_reduce import Rounds
from trainers.reduce.ordered_reduce import OrderedReduce, chunks

SECONDS = 30


def summed(vectors: Sequence[Tensor], members: int, bands: int = 1) -> list[Tensor]:
    """What each member has after the rounds, which it takes part in from a thread."""
    blocks, boxes = blocks_of(len(vectors), members), [Queue[Tensor]() for _ in range(members)]

    def take_part(index: int) -> Tensor:
        def exchange(outgoing: Sequence[Tensor], incoming: Sequence[Tensor]) -> None:
            for tensor in outgoing:
                boxes[index - 1].put(tensor.clone())
            for tensor in incoming:
                tensor.copy_(boxes[index].get(timeout=SECONDS))

        own = [vectors[rank].clone() for rank in blocks[index]]
        whole = chunks(own[0].numel(), len(vectors), own[0].element_size())
        width = -(-whole[0].stop // bands)
        for start in range(0, whole[0].stop, width):
            cut = [slice(min(c.start + start, c.stop), min(c.start + start + width, c.stop)) for c in whole]
            Rounds(blocks, index, exchange).sum(own, cut)
        return own[0]

    with ThreadPoolExecutor(members) as pool:
        return list(pool.map(take_part, range(members)))


def drawn(ranks: int, elements: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(ranks * elements)
    return [(torch.randn(elements, generator=generator) * 10.0 ** (rank % 5 - 2)).to(dtype) for rank in range(ranks)]


def in_order(vectors: Sequence[Tensor]) -> Tensor:
    return OrderedReduce(Group.alone(), len(vectors), torch.device("cpu")).sum([vector.clone() for vector in vectors])


@pytest.mark.parametrize("elements", [1, 7, 64, 1000, 30_011])
@pytest.mark.parametrize(("ranks", "members"), [(2, 2), (3, 2), (3, 3), (5, 2), (7, 3), (8, 4), (9, 8)])
def test_rounds_give_every_member_the_ring_s_sum(ranks: int, members: int, elements: int) -> None:
    vectors = drawn(ranks, elements)
    wanted = in_order(vectors)
    for bands in (1, 3):
        assert all(torch.equal(got, wanted) for got in summed(vectors, members, bands))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_rounds_add_each_type_as_the_ring_does(dtype: torch.dtype) -> None:
    vectors = drawn(5, 777, dtype)
    assert all(torch.equal(got, in_order(vectors)) for got in summed(vectors, 3))


def test_a_vector_is_cut_into_bands_of_all_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_reduce, "_BAND", 400)
    vector = torch.arange(1000.0)
    seen = torch.cat([vector[where] for band in device_reduce._bands(vector, 5) for where in band])
    assert torch.equal(seen.sort().values, vector)
    assert all(sum(where.stop - where.start for where in band) <= 100 for band in device_reduce._bands(vector, 5))
