"""A task with all that a move could lose: random states, buffers, moments, a schedule. Copied beside its spec."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

SAMPLES, HELD_OUT, SIDE, CLASSES = 83, 20, 10, 5


class Careful:
    """A convolutional network with BatchNorm and dropout under SGD with momentum and a schedule."""

    batch_size = 2

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(),
            nn.Linear(6 * SIDE * SIDE, CLASSES),
        )  # fmt: skip

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)

    def scheduler(self, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    def dataset(self, train: bool) -> TensorDataset:
        count = SAMPLES if train else HELD_OUT
        generator = torch.Generator().manual_seed(int(train))
        images = torch.randn(count, 1, SIDE, SIDE, generator=generator)
        return TensorDataset(images, torch.randint(0, CLASSES, (count,), generator=generator))
