"""The kinds of networks whose slow-down under pinned instruction sets is measured: small, each of another structure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from trainers.zoo import CNN, MLP, VGG, DenseNet, ResNet, ShuffleNetV2

__all__ = ["BATCH", "NETWORKS", "TimedNetwork"]

BATCH = 32

Inputs = Callable[[torch.Generator], Tensor]


@dataclass(frozen=True)
class TimedNetwork:
    """A network with ten outputs, and what draws a batch for it."""

    model: Callable[[], nn.Module]
    inputs: Inputs


class Detector(nn.Module):
    """Strided convolutions with one prediction for each cell of a grid, as YOLO's; the cells' mean are the outputs."""

    def __init__(self, widths: tuple[int, ...] = (16, 32, 64)) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in zip((3, *widths), widths):
            layers += [nn.Conv2d(before, after, 3, 2, 1, bias=False), nn.BatchNorm2d(after), nn.LeakyReLU(0.1)]
        self.features, self.head = nn.Sequential(*layers), nn.Conv2d(widths[-1], 10, 1)

    def forward(self, input: Tensor) -> Tensor:
        return self.head(self.features(input)).mean((2, 3))


class Recurrent(nn.Module):
    """Two GRU layers over a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(32, 128, 2, batch_first=True), nn.Linear(128, 10)

    def forward(self, input: Tensor) -> Tensor:
        return self.head(self.gru(input)[0][:, -1])


class Ratings(nn.Module):
    """A small NeuMF (He et al., WWW 2017): a product and a perceptron over embeddings of users and items."""

    def __init__(self, users: int = 6000, items: int = 4000, width: int = 64) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(users, 2 * width), nn.Embedding(items, 2 * width)
        self.layers = MLP(2 * width, (128, 64), 64)
        self.head = nn.Linear(width + 64, 10)

    def forward(self, pairs: Tensor) -> Tensor:
        user, item = self.users(pairs[:, 0]).chunk(2, 1), self.items(pairs[:, 1]).chunk(2, 1)
        return self.head(torch.cat([user[0] * item[0], self.layers(torch.cat([user[1], item[1]], 1))], 1))


class Logits(nn.Module):
    """A network of the `transformers` package, built from its configuration."""

    def __init__(self, kind: str, head: str, **settings: Any) -> None:
        super().__init__()
        import transformers

        configuration = getattr(transformers, f"{kind}Config")(num_labels=10, **settings)
        self.network = getattr(transformers, f"{kind}For{head}Classification")(configuration)

    def forward(self, input: Tensor) -> Tensor:
        return self.network(input).logits


def _encoder(kind: str, **settings: Any) -> Callable[[], nn.Module]:
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512}
    return lambda: Logits(kind, "Sequence", vocab_size=1000, max_position_embeddings=32, **sizes, **settings)


def _swin() -> nn.Module:
    sizes = {"image_size": 32, "patch_size": 4, "embed_dim": 32, "depths": [2, 2], "num_heads": [2, 4]}
    return Logits("Swin", "Image", window_size=4, **sizes)


def _numbers(*shape: int) -> Inputs:
    # Whole numbers first: randn itself depends on the instruction set.
    return lambda generator: torch.randint(-128, 128, (BATCH, *shape), generator=generator) / 64


def _tokens(limit: int, *shape: int) -> Inputs:
    return lambda generator: torch.randint(0, limit, (BATCH, *shape), generator=generator)


PICTURES = _numbers(3, 32, 32)
_OF_TRANSFORMERS = {
    "BERT": TimedNetwork(_encoder("Bert"), _tokens(1000, 32)),
    "ELECTRA": TimedNetwork(_encoder("Electra", embedding_size=64), _tokens(1000, 32)),
    "Swin": TimedNetwork(_swin, PICTURES),
}

NETWORKS: Mapping[str, TimedNetwork] = {
    "MLP": TimedNetwork(lambda: MLP(784, (512, 512)), _numbers(784)),
    "CNN with BatchNorm": TimedNetwork(lambda: CNN(3, (16, 32)), PICTURES),
    "ResNet": TimedNetwork(lambda: ResNet((1, 1), 16), PICTURES),
    "DenseNet": TimedNetwork(lambda: DenseNet((2, 2), 8), PICTURES),
    "VGG": TimedNetwork(lambda: VGG((1, 1, 2), (16, 32, 64), (128,)), PICTURES),
    "ShuffleNetV2": TimedNetwork(ShuffleNetV2, PICTURES),
    "detector": TimedNetwork(Detector, PICTURES),
    "NeuMF": TimedNetwork(Ratings, _tokens(4000, 2)),
    "GRU": TimedNetwork(Recurrent, _numbers(32, 32)),
    **(_OF_TRANSFORMERS if find_spec("transformers") else {}),
}
"""By name; those of the `transformers` package where it is installed."""
