"""The networks whose steps are timed, and what draws their batches; the large ones are those of papers, for GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.timed_networks import Logits
from trainers.zoo import CNN, MLP, VGG, ResNet, ShuffleNetV2

HAS_TRANSFORMERS = find_spec("transformers") is not None


@dataclass(frozen=True)
class SteppedNetwork:
    """A network with ten outputs or more, and what draws the inputs of a batch of so many samples."""

    model: Callable[[], nn.Module]
    inputs: Callable[[int, torch.Generator], Tensor]


class Encoder(nn.Module):
    """A transformer encoder over tokens, of torch's own parts, where the `transformers` package is missing."""

    def __init__(self, layers: int, width: int, heads: int, inner: int, tokens: int, length: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(tokens, width), nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(width, heads, inner, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, input: Tensor) -> Tensor:
        return self.head(self.layers(self.words(input) + self.places[: input.shape[1]])[:, 0])


def _pictures(side: int) -> Callable[[int, torch.Generator], Tensor]:
    return lambda batch, generator: torch.randn((batch, 3, side, side), generator=generator)


def _bert(layers: int, width: int, heads: int, tokens: int, length: int) -> SteppedNetwork:
    def model() -> nn.Module:
        if not HAS_TRANSFORMERS:
            return Encoder(layers, width, heads, 4 * width, tokens, length)
        sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
        room = {"intermediate_size": 4 * width, "vocab_size": tokens, "max_position_embeddings": length}
        return Logits("Bert", "Sequence", **sizes, **room)

    return SteppedNetwork(model, lambda batch, generator: torch.randint(tokens, (batch, length), generator=generator))


def _swin() -> nn.Module:
    sizes: dict[str, Any] = {"image_size": 224, "patch_size": 4, "window_size": 7, "embed_dim": 96}
    return Logits("Swin", "Image", depths=[2, 2, 6, 2], num_heads=[3, 6, 12, 24], **sizes)


def _resnet_50() -> nn.Module:
    return ResNet((3, 4, 6, 3), 64, classes=1000, block="bottleneck", stem="imagenet")


def _vgg_19() -> nn.Module:
    return VGG((2, 2, 4, 4, 4), (64, 128, 256, 512, 512), (4096, 4096), classes=1000, image=224)


def _shufflenet() -> nn.Module:
    return ShuffleNetV2((4, 8, 4), (116, 232, 464), classes=1000, last=1024, stem="imagenet")


STEPPED: Mapping[str, SteppedNetwork] = {
    "cnn": SteppedNetwork(lambda: CNN(3, (64, 128, 256, 512), 10), _pictures(32)),
    "resnet": SteppedNetwork(lambda: ResNet((2, 2, 2, 2), 32), _pictures(32)),
    "mlp": SteppedNetwork(lambda: MLP(3 * 32 * 32, (1024, 1024), 10), _pictures(32)),
    "ResNet-50": SteppedNetwork(_resnet_50, _pictures(224)),
    "ShuffleNetV2": SteppedNetwork(_shufflenet, _pictures(224)),
    "VGG-19": SteppedNetwork(_vgg_19, _pictures(224)),
    "BERT": _bert(12, 768, 12, 30522, 128),
    **({"Swin-T": SteppedNetwork(_swin, _pictures(224))} if HAS_TRANSFORMERS else {}),
    "small MLP": SteppedNetwork(
        lambda: MLP(64, (64,), 10), lambda batch, generator: torch.randn((batch, 64), generator=generator)
    ),
    "small ResNet": SteppedNetwork(lambda: ResNet((1, 1), 8), _pictures(16)),
    "small BERT": _bert(1, 32, 2, 100, 16),
}
"""By name: of 1.6, 2.8 and 4.2 million parameters; those of papers; those whose steps take no time."""
