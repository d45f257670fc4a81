"""Networks whose bits hang on how many multiprocessors an accelerator has."""

from __future__ import annotations

from torch import Tensor, nn


class Dropping(nn.Module):
    """It draws."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Dropout(0.5))

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


class Averaging(nn.Module):
    """It sums."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.layer(images.flatten(2).mean(dim=1))
