"""Residual networks (He et al., CVPR 2016) with free block counts and widths.

`blocks` of the known ones, with 64 as width and the imagenet stem: ResNet-18 (2, 2, 2, 2) and -34 (3, 4, 6, 3) with
basic blocks; ResNet-50 (3, 4, 6, 3), -101 (3, 4, 23, 3) and -152 (3, 8, 36, 3) with bottlenecks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainers.zoo.stem import start_convolutions
from trainers.zoo.stem import stem as make_stem


def _convolution(before: int, after: int, size: int, stride: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(before, after, size, stride=stride, padding=size // 2, bias=False), nn.BatchNorm2d(after)]


class _Residual(nn.Module):
    """relu(branch(x) + shortcut(x)); the shortcut is a 1x1 convolution where the shape changes."""

    def __init__(self, branch: Sequence[nn.Module], before: int, after: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(*branch)
        same = before == after and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(*_convolution(before, after, 1, stride))

    def forward(self, input: Tensor) -> Tensor:
        return torch.relu(self.branch(input) + self.shortcut(input))


def _basic(before: int, width: int, stride: int) -> _Residual:
    branch = [*_convolution(before, width, 3, stride), nn.ReLU(), *_convolution(width, width, 3)]
    return _Residual(branch, before, width, stride)


def _bottleneck(before: int, width: int, stride: int) -> _Residual:
    branch = [
        *_convolution(before, width, 1),
        nn.ReLU(),
        *_convolution(width, width, 3, stride),
        nn.ReLU(),
        *_convolution(width, 4 * width, 1),
    ]
    return _Residual(branch, before, 4 * width, stride)


class ResNet(nn.Module):
    """One stage for each of `blocks`; each stage doubles the width and, but for the first, halves the image.

    width: channels of the first stage (four times as many leave a bottleneck). block: "basic" or "bottleneck".
    stem: "small" or "imagenet" (see `trainers.zoo.stem`).
    """

    def __init__(
        self,
        blocks: Sequence[int] = (2, 2, 2, 2),
        width: int = 64,
        classes: int = 10,
        channels: int = 3,
        block: str = "basic",
        stem: str = "small",
    ) -> None:
        super().__init__()
        kinds = {"basic": (_basic, 1), "bottleneck": (_bottleneck, 4)}
        if block not in kinds:
            raise ValueError(f"block {block!r} is unknown; choose basic or bottleneck")
        make, expansion = kinds[block]
        self.stem = make_stem(stem, channels, width)
        stages: list[nn.Module] = []
        before = width
        for stage, count in enumerate(blocks):
            for position in range(count):
                stages.append(make(before, width << stage, 2 if stage and not position else 1))
                before = expansion * (width << stage)
        self.stages = nn.Sequential(*stages)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))
        start_convolutions(self)

    def forward(self, input: Tensor) -> Tensor:
        return self.head(self.stages(self.stem(input)))
