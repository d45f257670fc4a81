"""Tasks and data sets as people write them: a network that is called by keywords, one with methods, one with a pool."""

from __future__ import annotations

from multiprocessing import Pool
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

SAMPLES = 97
Batch = tuple[Tensor, Tensor]


class Rows:
    """Rows of numbers of two classes, one of them rare."""

    def __init__(self, train: bool = True, count: int = SAMPLES) -> None:
        generator = torch.Generator().manual_seed(int(train))
        self.x = torch.randn(count, 8, generator=generator)
        self.y = (self.x[:, 0] > 1.0).long()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.x[index], int(self.y[index])


class Net(nn.Module):
    """A network with a step of its own, in the way of Lightning."""

    def __init__(self, normalised: bool = True) -> None:
        super().__init__()
        norm: nn.Module = nn.BatchNorm1d(8) if normalised else nn.Identity()
        self.body = nn.Sequential(nn.Linear(8, 8), norm, nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.body(x)
        return made

    def training_step(self, batch: Batch) -> Tensor:
        """The loss of a batch."""
        return functional.cross_entropy(self(batch[0]), batch[1])

    def penalty(self) -> Tensor:
        """What keeps weights small."""
        return 1e-3 * torch.stack([weight.pow(2).sum() for weight in self.parameters()]).sum()


class Task:
    """What the others have in common."""

    batch_size = 8

    def model(self) -> nn.Module:
        return Net()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def dataset(self, train: bool) -> Any:
        return Rows(train, 96)


class Method(Task):
    """The loss is a method of the network."""

    def loss(self, model: Any, batch: Batch) -> Tensor:
        return model.training_step(batch)  # type: ignore[no-any-return]


class Methods(Task):
    """Several methods in one step, beside a call of a layer."""

    def loss(self, model: Any, batch: Batch) -> Tensor:
        assert isinstance(model, Net)
        twice = model.training_step(batch) + model.training_step((2 * batch[0], batch[1]))
        return twice + model.penalty() + model.body[0](batch[0]).pow(2).mean()


class CallAndMethod(Task):
    """A method of the network before it is called."""

    def loss(self, model: Any, batch: Batch) -> Tensor:
        return model.penalty() + functional.cross_entropy(model(batch[0]), batch[1])  # type: ignore[no-any-return]


class KeywordNet(nn.Module):
    """A network in the way of Hugging Face's: called by keywords, it gives its own loss. It counts its calls."""

    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 2)

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        if not self.training:
            KeywordNet.calls += 1
        logits = self.layer(input_ids)
        return {"logits": logits} | ({} if labels is None else {"loss": functional.cross_entropy(logits, labels)})


class Keywords(Task):
    """Called by keywords for loss and metrics."""

    def model(self) -> nn.Module:
        return KeywordNet()

    def loss(self, model: Any, batch: Batch) -> Tensor:
        assert isinstance(model, KeywordNet)
        return model(input_ids=batch[0], labels=batch[1])["loss"]  # type: ignore[no-any-return]

    def metrics(self, model: Any, batch: Batch) -> dict[str, tuple[float, float]]:
        logits = model(input_ids=batch[0], labels=batch[1])["logits"]
        return {"accuracy": (float((logits.argmax(1) == batch[1]).sum()), float(len(batch[1])))}


class Pooled(Task):
    """A data set that makes its samples with a pool of processes, again and again."""

    def dataset(self, train: bool) -> Any:
        for _ in range(10):
            with Pool(2) as pool:
                list(pool.imap(float, range(64)))
        return Rows(train, 96)


class OwnGenerator(Task):
    """A data set that draws from a generator of its own."""

    def dataset(self, train: bool) -> Any:
        return Drawing(train)


class Drawing(Rows):
    """Rows with noise that a generator of their own makes."""

    def __init__(self, train: bool = True) -> None:
        super().__init__(train, 96)
        self._generator = torch.Generator().manual_seed(1)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.x[index] + torch.randn(8, generator=self._generator), int(self.y[index])


class Dropping(Task):
    """Leaves its last batch out."""

    drop_last = True

    def dataset(self, train: bool) -> Any:
        return Rows(train)


class Weighed(Task):
    """Draws the rare class as often as the other."""

    def sample_weights(self, dataset: Rows) -> Tensor:
        return 1.0 / torch.bincount(dataset.y)[dataset.y]


def by_class(samples: Any) -> list[float]:
    """A weight for each sample, for a section's order."""
    return [3.0 if target else 1.0 for _, target in (samples[index] for index in range(len(samples)))]
