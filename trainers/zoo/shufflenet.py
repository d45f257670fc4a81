"""ShuffleNet V2 (Ma et al., ECCV 2018) with free depths and widths.

The paper's networks have blocks (4, 8, 4) and last 1024, with widths (48, 96, 192) at 0.5x, (116, 232, 464) at 1x,
(176, 352, 704) at 1.5x, and (244, 488, 976) with last 2048 at 2x, a stem of 24 channels and `stem` "imagenet".
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainers.zoo.stem import start_convolutions
from trainers.zoo.stem import stem as make_stem


def _pointwise(before: int, after: int) -> list[nn.Module]:
    return [nn.Conv2d(before, after, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]


def _depthwise(width: int, stride: int) -> list[nn.Module]:
    return [nn.Conv2d(width, width, 3, stride, padding=1, groups=width, bias=False), nn.BatchNorm2d(width)]


class _Unit(nn.Module):
    """Figure 3 (c), and (d) where the image is halved: two branches, joined, their channels shuffled."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        half, self.halves = after // 2, stride == 1
        entering = half if self.halves else before
        left = [] if self.halves else [*_depthwise(before, stride), *_pointwise(before, half)]
        self.left = nn.Sequential(*left)
        self.right = nn.Sequential(*_pointwise(entering, half), *_depthwise(half, stride), *_pointwise(half, half))

    def forward(self, input: Tensor) -> Tensor:
        left, right = input.chunk(2, 1) if self.halves else (input, input)
        joined = torch.stack((self.left(left), self.right(right)), 2)
        return joined.flatten(1, 2)


class ShuffleNetV2(nn.Module):
    """One stage for each of `blocks`, of the even width in `widths`; each stage halves the image.

    initial: channels of the stem; last: channels of the 1x1 convolution before the mean over space. stem: "small" as in
    `trainers.zoo.stem`, or "imagenet": a 3x3 convolution and max-pooling, each of stride 2.
    """

    def __init__(
        self,
        blocks: Sequence[int] = (4, 8, 4),
        widths: Sequence[int] = (48, 96, 192),
        classes: int = 10,
        channels: int = 3,
        initial: int = 24,
        last: int = 1024,
        stem: str = "small",
    ) -> None:
        super().__init__()
        if len(blocks) != len(widths):
            raise ValueError(f"{len(blocks)} blocks and {len(widths)} widths; give each stage its width")
        if any(width % 2 for width in widths):
            raise ValueError(f"widths {list(widths)} must be even: a unit has two branches of half the width")
        self.stem = make_stem(stem, channels, initial, 3)
        stages: list[nn.Module] = []
        before = initial
        for count, width in zip(blocks, widths):
            for position in range(count):
                stages.append(_Unit(before, width, 1 if position else 2))
                before = width
        self.stages = nn.Sequential(*stages, *_pointwise(before, last))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, classes))
        start_convolutions(self)

    def forward(self, input: Tensor) -> Tensor:
        return self.head(self.stages(self.stem(input)))
