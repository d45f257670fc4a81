"""Which samples an epoch has: without its incomplete last batch, and drawn by weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, WeightedRandomSampler

from preprocess import Dataset, DatasetSpec, SourceError, SourceSpec
from preprocess.samples.errors import DataSpecError
from preprocess.samples.order import TRAIN, OrderSpec
from preprocess.sources.source import weights_of
from trainers import BatchPlan
from trainers.job.single_job import DrawnSamples
from trainers.task.loss import UnfitTask

_ROWS = "benchmarks.numbered.written_tasks:Rows"


@pytest.mark.parametrize("samples", [1, 7, 8, 9, 97, 100, 101])
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 3, 8])
def test_drop_last_leaves_out_what_a_dataloader_does(samples: int, workers: int, size: int) -> None:
    numbers: Any = list(range(samples))
    expected = []
    for rank in range(workers):
        sampler: Any = DistributedSampler(numbers, workers, rank, shuffle=False)
        loader = DataLoader(numbers, size, sampler=sampler, drop_last=True, collate_fn=list)
        expected.append(list(loader))
    if not expected[0]:
        with pytest.raises(ValueError, match="drop_last leaves nothing"):
            BatchPlan(samples, workers, size, True)
        return
    plan = BatchPlan(samples, workers, size, True)
    found = [[plan.positions(rank, step).tolist() for step in range(plan.steps_per_epoch)] for rank in range(workers)]
    assert found == expected
    assert plan.taken == sum(len(batch) for batches in expected for batch in batches) and plan.last_batch == size


def test_a_plan_tells_its_last_batch() -> None:
    assert BatchPlan(97, 1, 8).last_batch == 1 and BatchPlan(97, 2, 8).last_batch == 1
    assert BatchPlan(96, 2, 8).last_batch == 8 and BatchPlan(97, 3, 8).last_batch == 1


def test_samples_are_drawn_as_by_a_weighted_sampler() -> None:
    spec = DatasetSpec("rows", SourceSpec(_ROWS), order=OrderSpec(weights="balanced"))
    data = Dataset(spec)
    targets = data.items.y
    weights = 1.0 / torch.bincount(targets).double()[targets]
    assert data.orders.weights is not None and np.allclose(data.orders.weights, weights.numpy())
    drawn = DrawnSamples(data.items, weights, 5, "job")
    for epoch in range(3):
        generator = torch.Generator().manual_seed(5 + epoch)
        expected = list(WeightedRandomSampler(weights.tolist(), len(targets), generator=generator))
        assert data.orders.of(5, epoch).tolist() == expected
        drawn.at_epoch(epoch)
        assert [drawn[place][1] for place in range(len(drawn))] == targets[torch.tensor(expected)].tolist()
        assert drawn.__getitems__([3, 1])[1][1] == drawn[1][1]
    counts = torch.bincount(targets[torch.from_numpy(np.concatenate([data.orders.of(1, e) for e in range(40)]))])
    assert abs(counts[0] / counts.sum() - 0.5) < 0.05
    assert data.fingerprints["weights"].length == 1 and not data.keeps_finished


def test_a_function_of_the_samples_gives_their_weights() -> None:
    source = Dataset(DatasetSpec("rows", SourceSpec(_ROWS))).preparation(TRAIN).source
    weights = weights_of(source, "benchmarks.numbered.written_tasks:by_class", 0)
    assert set(weights.tolist()) == {1.0, 3.0}


@pytest.mark.parametrize(
    ("given", "word"),
    [("torch:ones", "raised TypeError"), ("math:pi", "shape"), ("math:no", "has no 'no'"), ("nowhere:x", "nowhere")],
)
def test_what_gives_no_weights_is_refused(given: str, word: str) -> None:
    source = Dataset(DatasetSpec("rows", SourceSpec(_ROWS))).preparation(TRAIN).source
    with pytest.raises(SourceError, match=word):
        weights_of(source, given, 0)


@pytest.mark.parametrize("weights", [[1.0], [-1.0] * 4, [0.0] * 4, [float("nan")] * 4, "text", None])
def test_a_task_with_other_weights_is_refused(weights: Any) -> None:
    with pytest.raises(UnfitTask, match="as WeightedRandomSampler takes them"):
        DrawnSamples([0, 1, 2, 3], weights, 0, "job")


def test_weights_do_not_go_by_blocks() -> None:
    with pytest.raises(DataSpecError, match="not block by block"):
        OrderSpec("blocks", weights="balanced")
