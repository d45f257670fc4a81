"""What tasks have in common that train on images of noise: their samples and their optimizer."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

CLASSES = 10


class NoiseTask:
    """A task without a model.

    samples: of an epoch. side: of a square image of three channels.
    """

    samples: int
    side: int

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return SGD with momentum."""
        return torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def dataset(self, train: bool) -> TensorDataset | None:
        """Return images of noise, the same for all."""
        if not train:
            return None
        generator = torch.Generator().manual_seed(5)
        images = torch.randn(self.samples, 3, self.side, self.side, generator=generator)
        return TensorDataset(images, torch.randint(0, CLASSES, (self.samples,), generator=generator))
