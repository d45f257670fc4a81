"""Tasks that `fleet train` cannot train, each with one mistake that a person makes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from tests.commands.support.small_tasks import Noisy, Small


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 10)

    def forward(self, pictures: Tensor) -> Tensor:
        hull: Tensor = self.layer(pictures.flatten(1))
        return hull


class Narrow(Small):
    """A layer of its network does not fit the samples."""

    def model(self) -> nn.Module:
        return _Net()


class Stacked(Small):
    """The same with layers of torch alone."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(3, 10))


class Leaving(Small):
    """Its code ends the process."""

    def model(self) -> nn.Module:
        sys.exit(0)


class Sized(Small):
    """Wants an argument."""

    def __init__(self, width: int) -> None:
        self.width = width


class NoModel(Small):
    def model(self) -> nn.Module:
        super().model()  # without its return
        return None  # type: ignore[return-value]


class NoOptimizer(Small):
    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return model  # type: ignore[return-value]


class _Flow(IterableDataset[tuple[Tensor, Tensor]]):
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(())


class Flowing(Small):
    """Its samples come one after the other alone."""

    def dataset(self, train: bool) -> Any:
        return _Flow() if train else Noisy(10)


class Plateau(Small):
    """Plateaus need a metric."""

    def scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)


class Meaning(Small):
    """Gives a mean where a sum and a count belong."""

    def metrics(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Any:
        return {"accuracy": 0.5}
