"""How ResNet, DenseNet and ShuffleNet take their input in, and how their convolutions begin."""

from __future__ import annotations

from torch import nn


def stem(kind: str, channels: int, width: int, size: int = 7) -> nn.Sequential:
    """Return the layers before the first block.

    "imagenet": a convolution of `size` x `size` and max-pooling, each of stride 2, for images of some 224 pixels.
    "small": a 3x3 convolution of stride 1, for images of some 28 pixels.
    """
    if kind == "imagenet":
        return nn.Sequential(
            nn.Conv2d(channels, width, size, stride=2, padding=size // 2, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
    if kind == "small":
        return nn.Sequential(nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
    raise ValueError(f"stem {kind!r} is unknown; choose imagenet or small")


def start_convolutions(model: nn.Module) -> None:
    """Draw every convolution's weights as He et al. (ICCV 2015) do for ReLU networks."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
