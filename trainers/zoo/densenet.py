"""Densely connected networks (Huang et al., CVPR 2017) with free block counts and widths.

`blocks` of the known ones, with growth 32 and the imagenet stem: DenseNet-121 (6, 12, 24, 16), -169 (6, 12, 32, 32) and
-201 (6, 12, 48, 32).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainers.zoo.stem import start_convolutions
from trainers.zoo.stem import stem as make_stem


class _DenseLayer(nn.Module):
    """Appends `growth` channels to its input, by a 1x1 convolution to bottleneck * growth channels and a 3x3 one."""

    def __init__(self, before: int, growth: int, bottleneck: int, dropout: float) -> None:
        super().__init__()
        inner = bottleneck * growth
        self.branch = nn.Sequential(
            nn.BatchNorm2d(before),
            nn.ReLU(),
            nn.Conv2d(before, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Conv2d(inner, growth, 3, padding=1, bias=False),
            nn.Dropout(dropout),
        )

    def forward(self, input: Tensor) -> Tensor:
        return torch.cat([input, self.branch(input)], dim=1)


def _transition(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(nn.BatchNorm2d(before), nn.ReLU(), nn.Conv2d(before, after, 1, bias=False), nn.AvgPool2d(2))


class DenseNet(nn.Module):
    """One dense block of so many layers for each of `blocks`; between blocks channels and image are halved.

    growth: channels that each layer adds. initial: channels of the stem, 2 * growth if None. bottleneck: width of a
    layer's 1x1 convolution, in growths. stem: "small" or "imagenet" (see `trainers.zoo.stem`).
    """

    def __init__(
        self,
        blocks: Sequence[int] = (4, 4, 4),
        growth: int = 12,
        classes: int = 10,
        channels: int = 3,
        initial: int | None = None,
        bottleneck: int = 4,
        dropout: float = 0.0,
        stem: str = "small",
    ) -> None:
        super().__init__()
        width = 2 * growth if initial is None else initial
        self.stem = make_stem(stem, channels, width)
        stages: list[nn.Module] = []
        for stage, count in enumerate(blocks):
            if stage:
                stages.append(_transition(width, width // 2))
                width //= 2
            for _ in range(count):
                stages.append(_DenseLayer(width, growth, bottleneck, dropout))
                width += growth
        self.stages = nn.Sequential(*stages)
        self.head = nn.Sequential(
            nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)
        )
        start_convolutions(self)

    def forward(self, input: Tensor) -> Tensor:
        return self.head(self.stages(self.stem(input)))
