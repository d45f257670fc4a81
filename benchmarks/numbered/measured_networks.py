"""Networks, data and metrics whose numbers are held against plain PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

LABELS, LONGEST, SIDE = 3, 30, 8


class Rows:
    """Rows of numbers in two classes, told by a line; `form` says what a target looks like."""

    def __init__(self, train: bool, form: str = "index") -> None:
        generator = torch.Generator().manual_seed(int(train))
        self.inputs = torch.randn(120 if train else 61, 8, generator=generator)
        noise = torch.randn(len(self.inputs), generator=generator)
        self.classes = (self.inputs[:, :2].sum(1) + 0.7 * noise > 0).long()
        self._form = form

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        chosen = int(self.classes[index])
        forms: dict[str, Any] = {
            "index": chosen, "column": torch.tensor([chosen]), "float": float(chosen),
            "float column": torch.tensor([float(chosen)]), "one hot": torch.eye(2)[chosen], "int32": np.int32(chosen),
            "bool": bool(chosen), "byte": np.uint8(chosen),
        }  # fmt: skip
        return self.inputs[index], forms[self._form]


class Net(nn.Module):
    """A perceptron; with one output it gives a logit, (samples, 1) or flat."""

    def __init__(self, outputs: int = 2, flat: bool = False) -> None:
        super().__init__()
        self.layers, self._flat = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, outputs)), flat

    def forward(self, inputs: Tensor) -> Tensor:
        """Return scores."""
        scores: Tensor = self.layers(inputs)
        return scores.squeeze(1) if self._flat else scores


class Tags:
    """Sequences of 1 to 30 ids, and a label for each: of short ones any, of long ones what the id says."""

    def __init__(self, train: bool) -> None:
        generator = torch.Generator().manual_seed(int(train))
        self.samples = []
        for _ in range(96):
            length = 2 if torch.rand(1, generator=generator) < 0.5 else LONGEST
            ids = torch.randint(1, 20, (length,), generator=generator)
            drawn = torch.randint(0, LABELS, (length,), generator=generator)
            self.samples.append((ids, ids % LABELS if length == LONGEST else drawn))

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.samples[index]


class Tagger(nn.Module):
    """Scores of the labels of each id."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(20, 8), nn.Linear(8, LABELS)

    def forward(self, ids: Tensor) -> Tensor:
        """Return (samples, labels, places)."""
        scores: Tensor = self.head(self.table(ids)).transpose(1, 2)
        return scores


class Masks:
    """Pictures, and the class of each of their points."""

    def __init__(self, train: bool) -> None:
        generator = torch.Generator().manual_seed(int(train))
        self.inputs = torch.randn(60 if train else 31, 1, SIDE, SIDE, generator=generator)
        self.classes = (self.inputs[:, 0] > 0).long() + (self.inputs[:, 0] > 1).long()

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.inputs[index], self.classes[index]


class Segmenter(nn.Module):
    """Scores of the classes of each point."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, LABELS, 1))

    def forward(self, pictures: Tensor) -> Tensor:
        """Return (samples, classes, side, side)."""
        scores: Tensor = self.layers(pictures)
        return scores


class Tokens:
    """A task that names no metrics."""

    batch_size = 32

    def model(self) -> nn.Module:
        return Tagger()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.5)

    def dataset(self, train: bool) -> list[tuple[Tensor, Tensor]]:
        return [sample for sample in Tags(train).samples if len(sample[0]) == LONGEST]


def column_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of a column of targets."""
    return nn.functional.cross_entropy(outputs, targets.reshape(-1))


def rare_loss(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Cross entropy that cares for the second class alone, and what it divides by."""
    weight = torch.tensor([0.02, 1.0])
    return nn.functional.cross_entropy(outputs, targets, weight=weight), weight[targets].sum()


def found(outputs: Tensor, targets: Tensor) -> tuple[float, float]:
    """Of the second class: (found, there are)."""
    return float(((outputs.argmax(1) == 1) & (targets == 1)).sum()), float((targets == 1).sum())


found.better = "higher"  # type: ignore[attr-defined]


def nobody(outputs: Tensor, targets: Tensor) -> tuple[float, float]:
    """Of a class that there is not."""
    return 0.0, float((targets == 7).sum())


def wrong(outputs: Tensor, targets: Tensor) -> tuple[float, float]:
    """Samples that are taken for others; nobody says that less of it is better."""
    return float((outputs.argmax(1) != targets).sum()), float(len(targets))


def area(outputs: Tensor, targets: Tensor) -> tuple[float, float]:
    """The area under the curve of a batch, times its samples: no sum of anything."""
    scores = outputs[:, 1] - outputs[:, 0]
    there, others = scores[targets == 1], scores[targets == 0]
    if not len(there) or not len(others):
        return 0.0, 0.0
    return float((there[:, None] > others[None]).double().mean()) * len(targets), float(len(targets))


class Gathering:
    """A metric that keeps all it has seen."""

    def __init__(self) -> None:
        self._seen: list[tuple[Tensor, Tensor]] = []

    def __call__(self, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
        self._seen.append((outputs, targets))
        return area(*(torch.cat(each) for each in zip(*self._seen)))
