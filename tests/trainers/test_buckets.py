"""Bucket layouts against torch's own, and gradients on their way through buckets."""

from __future__ import annotations

import sys
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import distributed

from trainers.reduce.buckets import FIRST_LIMIT, LATER_LIMIT, Buckets, Layout

assign_by_torch: Any = distributed._compute_bucket_assignment_by_size  # type: ignore[attr-defined]
SIZES = st.lists(st.integers(1, 4_000_000), min_size=1, max_size=12)


def as_set(buckets: object) -> set[tuple[int, ...]]:
    return set(map(tuple, buckets))  # type: ignore[call-overload]


@settings(max_examples=50, deadline=None)
@given(SIZES, st.randoms(use_true_random=False), st.data())
def test_layouts_are_those_of_ddp(sizes: list[int], random: object, data: st.DataObject) -> None:
    dtypes = data.draw(
        st.lists(st.sampled_from([torch.float32, torch.float64]), min_size=len(sizes), max_size=len(sizes))
    )
    parameters = [torch.empty(size, dtype=dtype) for size, dtype in zip(sizes, dtypes)]
    first, _ = assign_by_torch(parameters, [sys.maxsize])
    assert as_set(Layout.first(parameters).buckets) == as_set(first)
    ready = data.draw(st.permutations(range(len(sizes))))
    later, _ = assign_by_torch([parameters[i] for i in ready], [FIRST_LIMIT, LATER_LIMIT], [False] * len(ready), ready)
    layout = Layout.rebuilt(parameters, ready, [True] * len(sizes))
    assert as_set(layout.buckets) == as_set(later)
    assert Layout.from_tree(layout.as_tree()) == layout


def test_parameters_without_gradient_come_last_and_keep_none() -> None:
    parameters = [torch.nn.Parameter(torch.ones(size)) for size in (2, 3, 4)]
    layout = Layout.rebuilt(parameters, [2, 0], [True, False, True])
    assert layout.buckets == ((2, 0, 1),)
    buckets = Buckets(parameters, layout)
    vectors = buckets.empty()
    buckets.views(vectors)[0].fill_(1)
    buckets.views(vectors)[2].fill_(2)
    buckets.give(vectors, layout.used or ())
    assert parameters[1].grad is None
    assert parameters[0].grad is not None and parameters[0].grad.tolist() == [1, 1]
    assert parameters[2].grad is not None and parameters[2].grad.tolist() == [2, 2, 2, 2]


def test_channels_last_gradients_keep_their_memory_order() -> None:
    parameter = torch.nn.Parameter(torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last))
    gradient = torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last)
    buckets = Buckets([parameter], Layout.first([parameter]))
    vectors = buckets.empty()
    buckets.views(vectors)[0].copy_(gradient)
    assert torch.equal(vectors[0], gradient.permute(0, 2, 3, 1).reshape(-1))
    buckets.give(vectors, [True])
    assert parameter.grad is not None and torch.equal(parameter.grad, gradient)
