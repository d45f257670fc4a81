"""Networks that train on unlike devices: a large one for steps of many milliseconds, a dozen small ones for bits."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn
from torch.utils.data import TensorDataset

CLASSES, SIDE = 10, 24


class Large:
    """Two wide convolutions on images of noise."""

    batch_size: ClassVar[int] = 48
    seed: ClassVar[int] = 7
    width: int = 48
    samples: ClassVar[int] = 1920
    dropout: ClassVar[float] = 0.0

    def model(self) -> nn.Module:
        """Return the network, with BatchNorm, and with dropout if its class has some."""
        return nn.Sequential(
            nn.Conv2d(3, self.width, 3, padding=1), nn.BatchNorm2d(self.width), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(self.width, self.width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(self.dropout),
            nn.Flatten(), nn.Linear(self.width * (SIDE // 4) ** 2, CLASSES),
        )  # fmt: skip

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return SGD with momentum."""
        return torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def dataset(self, train: bool) -> TensorDataset | None:
        """Return images of noise, the same for all."""
        if not train:
            return None
        generator = torch.Generator().manual_seed(5)
        images = torch.randn(self.samples, 3, SIDE, SIDE, generator=generator)
        return TensorDataset(images, torch.randint(0, CLASSES, (self.samples,), generator=generator))


class Small(Large):
    """A narrow one with dropout; the job's own `seed` and `batch_size` count."""

    batch_size = 4
    samples = 240
    dropout = 0.2

    def __init__(self, width: int) -> None:
        self.width = width
