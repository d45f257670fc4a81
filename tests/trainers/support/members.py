"""Members of a population after their first epoch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from trainers import Checkpoint, Group, Trainer


class Member:
    """A network with buffers, dropout and moments."""

    batch_size = 4

    def __init__(self, seed: int, width: int = 16) -> None:
        self.seed, self._width = seed, width

    def model(self) -> nn.Module:
        """It draws random numbers as it trains."""
        layers = [nn.Linear(3, self._width), nn.BatchNorm1d(self._width), nn.Dropout(0.5), nn.Linear(self._width, 2)]
        return nn.Sequential(*layers)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Each member has a rate of its own."""
        return torch.optim.AdamW(model.parameters(), lr=0.001 * (1 + self.seed))

    def dataset(self, train: bool) -> Any:
        """None: the batches are made up."""


def trained(seed: int, virtual_workers: int = 2, width: int = 16) -> Checkpoint:
    """The state of a member after an epoch of two steps."""
    generator = torch.Generator().manual_seed(seed)
    with Group.alone() as group:
        trainer = Trainer(Member(seed, width), virtual_workers, group)
        with trainer.reducing():
            for _ in range(2):
                batch = torch.randn(4, 3, generator=generator), torch.tensor([0, 1, 0, 1])
                trainer.step([batch] * virtual_workers)
        trainer.finish_epoch({"loss": 1.0 / (1 + seed)})
        saved = trainer.snapshot()
    assert saved is not None
    return replace(saved, job=f"member-{seed}")
