"""The split of an epoch against torch's DistributedSampler and DataLoader."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, DistributedSampler

from trainers import BatchPlan


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 7), st.integers(0, 3))
def test_batches_are_those_of_torch(samples: int, workers: int, batch: int, epoch: int) -> None:
    plan = BatchPlan(samples, workers, batch)
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(5 + epoch))
    for rank in range(workers):
        data: Any = torch.arange(samples)
        sampler: Any = DistributedSampler(data, workers, rank, shuffle=True, seed=5)
        sampler.set_epoch(epoch)
        wanted = [batch.tolist() for batch in DataLoader(data, batch, sampler=sampler)]
        assert len(wanted) == plan.steps_per_epoch
        assert [order[plan.positions(rank, step)].tolist() for step in range(plan.steps_per_epoch)] == wanted


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 7))
def test_steps_take_consecutive_ranges(samples: int, workers: int, batch: int) -> None:
    plan = BatchPlan(samples, workers, batch)
    taken = [position for step in range(plan.steps_per_epoch) for position in plan.step_range(step)]
    assert taken == list(range(plan.padded))
    assert plan.padded % workers == 0 and 0 <= plan.padded - samples < workers


def test_wrong_numbers_are_named() -> None:
    with pytest.raises(ValueError, match="batch_size is 0"):
        BatchPlan(10, 2, 0)
    with pytest.raises(ValueError, match="step 3 is not in this epoch of 3 steps"):
        BatchPlan(10, 2, 2).step_range(3)
    with pytest.raises(ValueError, match="virtual rank 2 is not one of 0 to 1"):
        BatchPlan(10, 2, 2).positions(2, 0)
