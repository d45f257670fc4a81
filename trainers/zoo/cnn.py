"""A small convolutional network."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class CNN(nn.Module):
    """For each of `widths` a 3x3 convolution, ReLU and 2x2 max-pooling; then the mean over space and `classes` logits.

    Takes images of `channels` channels, at least 2 ** len(widths) pixels high and wide.
    """

    def __init__(
        self,
        channels: int = 1,
        widths: Sequence[int] = (16, 32),
        classes: int = 10,
        dropout: float = 0.0,
        batch_norm: bool = True,
    ) -> None:
        super().__init__()
        sizes = [channels, *widths]
        layers: list[nn.Module] = []
        for before, after in zip(sizes, sizes[1:]):
            layers.append(nn.Conv2d(before, after, 3, padding=1, bias=not batch_norm))
            if batch_norm:
                layers.append(nn.BatchNorm2d(after))
            layers += [nn.ReLU(), nn.MaxPool2d(2)]
        self.features = nn.Sequential(*layers)
        self.head = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout), nn.Linear(sizes[-1], classes)
        )

    def forward(self, input: Tensor) -> Tensor:
        return self.head(self.features(input))
