"""Networks that train on unlike devices: a large one for steps of many milliseconds, a dozen small ones for bits."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from benchmarks.noise_task import CLASSES, NoiseTask

SIDE = 24


class Large(NoiseTask):
    """Two wide convolutions on images of noise."""

    batch_size: ClassVar[int] = 48
    seed: ClassVar[int] = 7
    width: int = 48
    samples: int = 1920
    side: int = SIDE
    dropout: ClassVar[float] = 0.0

    def model(self) -> nn.Module:
        """Return the network, with BatchNorm, and with dropout if its class has some."""
        return nn.Sequential(
            nn.Conv2d(3, self.width, 3, padding=1), nn.BatchNorm2d(self.width), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(self.width, self.width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(self.dropout),
            nn.Flatten(), nn.Linear(self.width * (SIDE // 4) ** 2, CLASSES),
        )  # fmt: skip


class Small(Large):
    """A narrow one with dropout; the job's own `seed` and `batch_size` count."""

    batch_size = 4
    samples = 240
    dropout = 0.2

    def __init__(self, width: int) -> None:
        self.width = width
