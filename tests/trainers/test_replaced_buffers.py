"""A module may put another tensor in the place of a buffer: checkpoints have what is there now."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainers import Group, Trainer

STEPS = 6


class Counting(nn.Module):
    """Counts its forward passes in a buffer: in place, in a new tensor, or in a new memory of the same tensor."""

    count: Tensor

    def __init__(self, way: str) -> None:
        super().__init__()
        self.layer, self._way = nn.Linear(2, 2), way
        self.register_buffer("count", torch.zeros(3))

    def forward(self, inputs: Tensor) -> Tensor:
        if self._way == "in place":
            self.count += 1
        elif self._way == "new tensor":
            self.count = self.count + 1
        else:
            self.count.data = self.count + 1
        return self.layer(inputs)  # type: ignore[no-any-return]


class Task:
    name, batch_size, seed = "counting", 4, 1

    def __init__(self, way: str) -> None:
        self._way = way

    def model(self) -> nn.Module:
        return Counting(self._way)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), 0.1)

    def dataset(self, train: bool) -> Any:
        return None


@pytest.mark.parametrize("way", ["in place", "new tensor", "new memory"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_checkpoint_has_the_buffers_that_are_there(workers: int, way: str) -> None:
    trainer = Trainer(Task(way), workers, Group.alone())
    batch = torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64)
    for _ in range(STEPS):
        trainer.step([batch] * workers)
    saved = trainer.snapshot()
    assert saved is not None
    found = [worker["buffers"]["count"].tolist() for worker in saved.workers]
    assert found[0] == [STEPS] * 3 and len(found) == workers
