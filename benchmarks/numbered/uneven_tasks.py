"""Small tasks whose parts of a batch do not weigh alike: padded sequences, ignored targets, class weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

KINDS = ("pad", "ignored", "weights")
SAMPLES, BATCH, IGNORED = 96, 32, -100
WEIGHTS = torch.tensor([1.0, 20.0])


class Tagger(nn.Module):
    """A class for each id of a sequence, or for a whole sequence."""

    def __init__(self, each: bool) -> None:
        super().__init__()
        self._each, self.table, self.out = each, nn.Embedding(20, 8), nn.Linear(8, 2)

    def forward(self, ids: Tensor) -> Tensor:
        """Return (samples, classes, ids), or (samples, classes)."""
        found: Tensor = self.out(self.table(ids))
        return found.transpose(1, 2) if self._each else found.mean(dim=1)


def samples(kind: str, count: int = SAMPLES, seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    """Short sequences are hard and long ones easy, so that a mean of their means is far from the mean over all."""
    generator, found = torch.Generator().manual_seed(seed), []
    for number in range(count):
        length = (2, 30)[int(torch.rand(1, generator=generator) < 0.5)] if kind == "pad" else 8
        ids = torch.randint(1, 20, (length,), generator=generator)
        tags = ids % 2 if length > 2 else torch.randint(0, 2, (length,), generator=generator)
        rare = (ids.sum() % 8 == 0).long()
        label = {"pad": tags, "ignored": torch.where(torch.tensor(number % 3 == 0), IGNORED, rare), "weights": rare}
        found.append((ids, label[kind]))
    return found


def collate(chosen: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Pad inputs with 0 and targets with what is ignored."""
    ids, tags = zip(*chosen)
    return pad_sequence(list(ids), True), pad_sequence(list(tags), True, IGNORED) if tags[0].dim() else torch.stack(
        tags
    )


def weight_of(kind: str, targets: Tensor) -> float:
    """What torch's mean over these targets is divided by."""
    return float(WEIGHTS[targets].sum() if kind == "weights" else (targets != IGNORED).sum())


def loss_and_weight(kind: str, outputs: Tensor, targets: Tensor) -> tuple[Tensor, float]:
    """The mean as torch has it, and what it was divided by."""
    weights = WEIGHTS if kind == "weights" else None
    return functional.cross_entropy(outputs, targets, weights), weight_of(kind, targets)


class Uneven:
    """A task of one kind; its loss tells the weight beside the mean, or, where it is known, before any pass."""

    batch_size, name, scratch = BATCH, "uneven", ("seen",)
    collate = staticmethod(collate)

    def __init__(self, kind: str, accumulate: int = 1, known: bool = True) -> None:
        self._kind, self.accumulate = kind, accumulate
        if known:
            self.loss_weight = lambda batch: weight_of(kind, batch[1])
        self.seen: list[Tensor] = []

    def model(self) -> nn.Module:
        """Build the network."""
        return Tagger(self._kind == "pad")

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Build the optimizer."""
        return torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)

    def dataset(self, train: bool) -> Any:
        """The samples; others are held out."""
        return samples(self._kind, seed=0 if train else 1)

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, float]:
        """The mean loss, and what it was divided by."""
        return loss_and_weight(self._kind, model(batch[0]), batch[1])

    def metrics(self, model: nn.Module, batch: Any) -> dict[str, tuple[float, float]]:
        """None."""
        return {}

    def before_step(self, model: nn.Module) -> None:
        """Keep the summed gradients."""
        self.seen.append(torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]))
