"""Networks with free depths and widths: perceptrons, a decoder of text, and convolutional networks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


class MLP(nn.Module):
    """Flattens its input to `inputs` features; one hidden ReLU layer for each of `widths`; `classes` logits."""

    def __init__(
        self, inputs: int = 784, widths: Sequence[int] = (128,), classes: int = 10, dropout: float = 0.0
    ) -> None:
        super().__init__()
        sizes = [inputs, *widths]
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in zip(sizes, sizes[1:]):
            layers += [nn.Linear(before, after), nn.ReLU()]
            if dropout:
                layers.append(nn.Dropout(dropout))
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], classes))

    def forward(self, input: Tensor) -> Tensor:
        return self.layers(input)


class GPT(nn.Module):
    """Scores, for each place of a text, of every id that may come next (Radford et al., 2019, GPT-2, without dropout).

    Attention is written out, so that it has a deterministic backward pass on every device.

    Args:
        vocabulary: V, how many ids there are.
        context: most ids of a text.
        width: how wide the residual stream is.
        layers: blocks of attention and a perceptron four times as wide.
        heads: how many each attention has; they divide the width.
        dropout: after the embedding, and after each attention and perceptron.
    """

    def __init__(
        self,
        vocabulary: int = 50257,
        context: int = 1024,
        width: int = 768,
        layers: int = 12,
        heads: int = 12,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is no multiple of heads {heads}: each head has as much of it")
        self.ids, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(_Block(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for table in (self.ids, self.places):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the scores, (samples, V, T), of ids, (samples, T) of int64: as cross entropy takes them."""
        places = torch.arange(ids.shape[1], device=ids.device)
        hidden = self.blocks(self.dropout(self.ids(ids) + self.places(places)))
        scores: Tensor = self.head(self.norm(hidden))
        return scores.transpose(1, 2)


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_perceptron = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projected, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.dropout(self._attention(self.before_attention(hidden)))
        return hidden + self.dropout(self.perceptron(self.before_perceptron(hidden)))

    def _attention(self, hidden: Tensor) -> Tensor:
        """Causal attention; (samples, T, width) in and out."""
        samples, length, width = hidden.shape
        split = self.projected(hidden).view(samples, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        later = torch.ones(length, length, dtype=torch.bool, device=hidden.device).triu(1)
        scores = (query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)).masked_fill(later, -math.inf)
        seen = functional.softmax(scores, dim=-1) @ value
        joined: Tensor = self.joined(seen.transpose(1, 2).reshape(samples, length, width))
        return joined


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


class VGG(nn.Module):
    """For each of `blocks` so many 3x3 convolutions of one width, then 2x2 max-pooling; then hidden layers and logits.

    Simonyan and Zisserman, ICLR 2015. `blocks` of the known ones, with widths (64, 128, 256, 512, 512), hidden (4096,
    4096) and images of 224 pixels: VGG-11 (1, 1, 2, 2, 2), -13 (2, 2, 2, 2, 2), -16 (2, 2, 3, 3, 3) and -19 (2, 2, 4,
    4, 4).

    Images are `image` pixels high and wide, and each block halves them. hidden: widths of the fully connected layers,
    each with dropout.
    """

    def __init__(
        self,
        blocks: Sequence[int] = (1, 1, 2),
        widths: Sequence[int] = (64, 128, 256),
        hidden: Sequence[int] = (256,),
        classes: int = 10,
        channels: int = 3,
        image: int = 32,
        dropout: float = 0.5,
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        if len(blocks) != len(widths):
            raise ValueError(f"{len(blocks)} blocks and {len(widths)} widths; give each block its width")
        if image >> len(blocks) < 1:
            raise ValueError(f"images of {image} pixels cannot be halved {len(blocks)} times; give fewer blocks")
        layers: list[nn.Module] = []
        for count, width in zip(blocks, widths):
            for _ in range(count):
                layers.append(nn.Conv2d(channels, width, 3, padding=1))
                layers += [nn.BatchNorm2d(width), nn.ReLU()] if batch_norm else [nn.ReLU()]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        sizes = [channels * (image >> len(blocks)) ** 2, *hidden]
        head: list[nn.Module] = [nn.Flatten()]
        for before, after in zip(sizes, sizes[1:]):
            head += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(dropout)]
        self.head = nn.Sequential(*head, nn.Linear(sizes[-1], classes))
        start_convolutions(self)

    def forward(self, input: Tensor) -> Tensor:
        return self.head(self.features(input))


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

    Huang et al., CVPR 2017. `blocks` of the known ones, with growth 32 and the imagenet stem: DenseNet-121 (6, 12, 24,
    16), -169 (6, 12, 32, 32) and -201 (6, 12, 48, 32).

    growth: channels that each layer adds. initial: channels of the stem, 2 * growth if None. bottleneck: width of a
    layer's 1x1 convolution, in growths. stem: "small" or "imagenet" (see `stem_of`).
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
        self.stem = stem_of(stem, channels, width)
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

    He et al., CVPR 2016. `blocks` of the known ones, with 64 as width and the imagenet stem: ResNet-18 (2, 2, 2, 2) and
    -34 (3, 4, 6, 3) with basic blocks; ResNet-50 (3, 4, 6, 3), -101 (3, 4, 23, 3) and -152 (3, 8, 36, 3) with
    bottlenecks.

    width: channels of the first stage (four times as many leave a bottleneck). block: "basic" or "bottleneck".
    stem: "small" or "imagenet" (see `stem_of`).
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
        self.stem = stem_of(stem, channels, width)
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

    Ma et al., ECCV 2018. The paper's networks have blocks (4, 8, 4) and last 1024, with widths (48, 96, 192) at 0.5x,
    (116, 232, 464) at 1x, (176, 352, 704) at 1.5x, and (244, 488, 976) with last 2048 at 2x, a stem of 24 channels and
    `stem` "imagenet".

    initial: channels of the stem; last: channels of the 1x1 convolution before the mean over space. stem: "small" as in
    `stem_of`, or "imagenet": a 3x3 convolution and max-pooling, each of stride 2.
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
        self.stem = stem_of(stem, channels, initial, 3)
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


def stem_of(kind: str, channels: int, width: int, size: int = 7) -> nn.Sequential:
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
