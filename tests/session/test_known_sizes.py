"""Sizes of jobs that are alike are found once, and are what each would be found to have."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from fleet.profiling import sizing
from fleet.spec import EnsembleSpec
from fleet.workers import runtime as known_sizes
from fleet.workers.rank import Rank
from fleet.workers.runtime import KnownSizes, Runtime
from preprocess import SampleLayout
from trainers import Task
from trainers.zoo import DenseNet, ResNet


@pytest.fixture
def runtime_of(rehearsed: Callable[..., Rank], spec: Callable[..., EnsembleSpec]) -> Callable[..., Runtime]:
    """The run's runtime with a job more, called `late`, with these keys."""
    rank = rehearsed()

    def with_late(**keys: Any) -> Runtime:
        return rank.runtime.with_job(spec({"name": "late", **keys}).jobs[0])

    return with_late


def sgd(**arguments: float) -> dict[str, Any]:
    return {"name": "SGD", "arguments": arguments}


def test_rates_change_no_size_and_all_else_may(
    runtime_of: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    def counted(*known: Any) -> sizing.Size:
        nonlocal asked
        asked += 1
        return sizing.size_of(*known)

    monkeypatch.setattr(known_sizes, "size_of", counted)
    sizes, times = KnownSizes(), []
    for keys in (sgd(lr=0.1), sgd(lr=0.2), sgd(lr=0.1, weight_decay=0.3), sgd(lr=0.1, momentum=0.5)):
        runtime = runtime_of(optimizer=keys)
        assert sizes.of(runtime, "late") == sizing.size_of(runtime.task("late"), runtime.data_of("late").layout)
        times.append(asked)
    assert times == [1, 1, 1, 2]


def test_what_nothing_can_be_made_of_is_refused_all_the_same(runtime_of: Callable[..., Runtime]) -> None:
    sizes = KnownSizes()
    sizes.of(runtime_of(optimizer=sgd(lr=0.1)), "late")
    with pytest.raises(ValueError, match="learning rate"):
        sizes.of(runtime_of(optimizer=sgd(lr=-0.1)), "late")


NETWORKS = (
    ResNet([1, 2, 1], 8, channels=1),
    ResNet([2, 1], 8, channels=1, block="bottleneck"),
    DenseNet([2, 3], channels=1, stem="small"),
    nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Flatten(), nn.Linear(4 * 6 * 6, 10)),
)
PICTURES = SampleLayout((1, 8, 8), "float32", (), "int64")


class Pictures(Task):
    """Trains a network of NETWORKS."""

    batch_size = 4

    def __init__(self, number: int) -> None:
        self.network = NETWORKS[number]

    def model(self) -> nn.Module:
        return self.network

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def dataset(self, train: bool) -> Any:
        return None


def test_operators_that_are_known_change_no_size() -> None:
    known = sizing.KnownOperators()
    for number in (*range(len(NETWORKS)), *range(len(NETWORKS))):
        found = sizing.size_of(Pictures(number), PICTURES, known)
        meta = copy.deepcopy(NETWORKS[number]).to("meta")
        kept = SavedBytes()
        with FlopCounterMode(display=False) as counter, saved_tensors_hooks(kept.pack, lambda tensor: tensor):
            images = torch.zeros(4, 1, 8, 8, device="meta")
            cross_entropy(meta(images), torch.zeros(4, dtype=torch.int64, device="meta")).backward()
        assert (found.operations or 0) * 4 == counter.get_total_flops() > 0
        assert found.activation_bytes == kept.total


class SavedBytes:
    """The bytes of all storages that autograd keeps."""

    def __init__(self) -> None:
        self.storages: dict[int, torch.UntypedStorage] = {}

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        self.storages.setdefault(tensor.untyped_storage()._cdata, tensor.untyped_storage())
        return tensor

    @property
    def total(self) -> int:
        return sum(storage.nbytes() for storage in self.storages.values())
