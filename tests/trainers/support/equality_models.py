"""Networks that the tests of equality train and `trainers.zoo` lacks: small, and each of another structure."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

ANCHORS = 2
CLASSES = 5


class Detector(nn.Module):
    """A detector in the manner of YOLO: one prediction for each cell of a grid of 4x4 and each anchor.

    Takes images (n, 3, 32, 32); gives (n, 4, 4, ANCHORS, 5 + CLASSES): offsets, sizes, objectness, classes.
    """

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in ((3, 8), (8, 16), (16, 24)):
            layers += [nn.Conv2d(before, after, 3, 2, 1, bias=False), nn.BatchNorm2d(after), nn.LeakyReLU(0.1)]
        self.features = nn.Sequential(*layers)
        self.head = nn.Conv2d(24, ANCHORS * (5 + CLASSES), 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images)).unflatten(1, (ANCHORS, -1)).permute(0, 3, 4, 1, 2)


def detection_loss(model: nn.Module, batch: tuple[Tensor, tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """Squared errors of boxes, binary cross entropy of objectness, cross entropy of classes, as YOLO weighs them."""
    images, (boxes, labels, present) = batch
    predicted = model(images)
    count = len(images)
    column, row = (boxes[..., :2] * 4).long().clamp(0, 3).unbind(-1)
    anchor = (boxes[..., 2] < boxes[..., 3]).long()
    chosen = predicted[torch.arange(count)[:, None], row, column, anchor]
    weights = present.float()
    coordinates = (chosen[..., :4].sigmoid() - boxes).square().sum(-1)
    objects = torch.zeros_like(predicted[..., 4])
    objects[torch.arange(count)[:, None], row, column, anchor] = weights
    objectness = functional.binary_cross_entropy_with_logits(predicted[..., 4], objects, reduction="none")
    classes = functional.cross_entropy(chosen[..., 5:].flatten(0, 1), labels.flatten(), reduction="none")
    of_boxes = 5 * coordinates + classes.view_as(weights)
    return ((of_boxes * weights).sum() + (objectness * (0.5 + 0.5 * objects)).sum()) / count


class NeuMF(nn.Module):
    """Neural matrix factorisation (He et al., WWW 2017): a product of embeddings beside a multi-layer perceptron."""

    def __init__(self, users: int = 50, items: int = 80, factors: int = 8) -> None:
        super().__init__()
        self.tables = nn.ModuleDict(
            {
                f"{kind}_{part}": nn.Embedding(count, factors)
                for part in ("product", "perceptron")
                for kind, count in (("users", users), ("items", items))
            }
        )
        self.layers = nn.Sequential(nn.Linear(2 * factors, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 8), nn.ReLU())
        self.last = nn.Linear(factors + 8, 1)

    def forward(self, pair: dict[str, Tensor]) -> Tensor:
        users, items = pair["user"], pair["item"]
        product = self.tables["users_product"](users) * self.tables["items_product"](items)
        joined = torch.cat([self.tables["users_perceptron"](users), self.tables["items_perceptron"](items)], -1)
        return self.last(torch.cat([product, self.layers(joined)], -1)).squeeze(-1)


class GRULanguageModel(nn.Module):
    """Two GRU layers with dropout that guess the next token; the embedding is also the last layer's weight."""

    def __init__(self, tokens: int = 60, width: int = 24) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.layers = nn.GRU(width, width, 2, batch_first=True, dropout=0.3)
        self.last = nn.Linear(width, tokens)
        self.last.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.last(self.layers(self.embedding(tokens))[0])


class Wavering(nn.Module):
    """Two layers side by side. The second is used "never", "by some" (where the first pixel is positive), or "frozen".

    A layer that some batches leave out gets gradients on some workers only.
    """

    def __init__(self, second: str) -> None:
        super().__init__()
        self.use = second
        self.first, self.second, self.last = nn.Linear(256, 30), nn.Linear(256, 30), nn.Linear(30, 10)
        self.second.requires_grad_(second != "frozen")

    def forward(self, images: Tensor) -> Tensor:
        pixels = images.flatten(1)
        hidden = self.first(pixels)
        if self.use == "frozen" or (self.use == "by some" and pixels[0, 0] > 0):
            hidden = hidden + self.second(pixels)
        return self.last(hidden.relu())


class TransformersModel(nn.Module):
    """A network of the `transformers` package, built from its configuration; gives its logits."""

    def __init__(self, kind: str, **settings: Any) -> None:
        super().__init__()
        import transformers

        name, head = kind.split("For")
        self.network = getattr(transformers, f"{name}For{head}")(getattr(transformers, f"{name}Config")(**settings))

    def forward(self, input: Any) -> Tensor:
        return self.network(**input).logits
