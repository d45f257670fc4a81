"""Small tasks of several kinds; they need torch alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from trainers.zoo import CNN, MLP, ResNet

SAMPLES = 50


class Pictures(Dataset[tuple[Tensor, int]]):
    """Pictures of noise, each shifted anew at every visit, so that order and random states show in the bits."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(5)
        self._pictures = torch.randn(SAMPLES, 3, 16, 16, generator=generator)
        self._labels = torch.randint(0, 10, (SAMPLES,), generator=generator).tolist()

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        shift = int(torch.randint(-2, 3, ()))
        return self._pictures[index].roll(shift, 2), self._labels[index]


class _Pictures:
    batch_size, seed = 4, 11

    def dataset(self, train: bool) -> Pictures | None:
        return Pictures() if train else None


class Convolutions(_Pictures):
    """BatchNorm and dropout under SGD with momentum."""

    def model(self) -> nn.Module:
        return nn.Sequential(CNN(3, (16, 32), 24), nn.Dropout(0.3), nn.Linear(24, 10))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)


class Residual(_Pictures):
    """A ResNet under Adam with a schedule, its gradients clipped."""

    clip_norm = 1.0

    def model(self) -> nn.Module:
        return ResNet((1, 1), 16)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), 1e-3)

    def scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)


class Halves(_Pictures):
    """Two buckets, bfloat16 and gradients accumulated over two parts of a batch."""

    autocast, accumulate = "bfloat16", 2

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Flatten(), MLP(3 * 16 * 16, (512, 256), 10))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), 1e-3)


class Attention(_Pictures):
    """A transformer encoder over rows of pixels."""

    def model(self) -> nn.Module:
        return _Encoder()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), 1e-3)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return functional.cross_entropy(model(batch[0]), batch[1], label_smoothing=0.1)


class _Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(48, 4, 96, dropout=0.1, batch_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(48, 10)

    def forward(self, pictures: Tensor) -> Tensor:
        rows = pictures.permute(0, 2, 1, 3).flatten(2)
        return self.head(self.layers(rows).mean(1))
