"""What the consistency tests train: small enough for seconds, rich enough that every rule of the contract shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.utils.data import TensorDataset

from trainers.zoo import CNN, MLP

SAMPLES = 89  # neither 2, 3 nor 4 workers divide it, so orders are padded and last batches are partial
HELD_OUT = 50
STEPS = 14  # beyond the first epoch's end for 2, 3 and 4 workers
BATCH = 4
SEED = 11


def samples(count: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(
        torch.randn(count, 1, 12, 12, generator=generator), torch.randint(0, 10, (count,), generator=generator)
    )


class Odd(nn.Module):
    """Parameters without a dimension, without an element, across memory, of two types; a weight of torch's hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.none, self.scale = nn.Parameter(torch.zeros(0, 3)), nn.Parameter(torch.tensor(1.0, dtype=torch.float64))
        self.turned, self.layer = nn.Parameter(torch.randn(144, 40).t() / 12), nn.Linear(40, 10)
        prune.l1_unstructured(self.layer, "weight", amount=0.3)

    def forward(self, images: Tensor) -> Tensor:
        hidden = torch.relu(images.flatten(1) @ self.turned.t())
        scores: Tensor = self.layer(hidden) * self.scale + self.none.sum()
        return scores.float()


@dataclass(frozen=True)
class Case:
    network: str
    rule: str
    virtual_workers: int

    batch_size = BATCH
    seed = SEED

    @property
    def name(self) -> str:
        return f"{self.network}-{self.rule}-{self.virtual_workers}"

    def model(self) -> nn.Module:
        if self.network == "mlp":  # 1.7 MiB, so that the rebuilt buckets are two
            return MLP(144, (1200, 200), 10, dropout=0.2)
        if self.network == "odd":
            return Odd()
        cnn = CNN(1, (16, 32), 10, dropout=0.3, batch_norm=True)
        return cnn if self.network == "cnn" else cnn.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        if self.rule == "sgd":
            return torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
        return torch.optim.Adam(model.parameters(), 1e-3, fused=self.rule == "fused")

    def scheduler(self, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler | None:
        return torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 9], 0.5) if self.rule == "sgd" else None

    def dataset(self, train: bool) -> TensorDataset:
        return samples(SAMPLES, 7) if train else samples(HELD_OUT, 8)


CASES = [Case(network, rule, n) for n in (2, 3) for network in ("mlp", "cnn") for rule in ("sgd", "adam")]
CASES += [Case("cnn", "sgd", 4), Case("channels-last", "adam", 2), Case("channels-last", "fused", 3)]
CASES.append(Case("odd", "fused", 2))
VECTOR_SIZES = (1, 2, 5, 13, 1000, 262147, 900001)


def vector(size: int, rank: int) -> Tensor:
    """A vector whose elements differ so much in size that any other order of addition shows."""
    generator = torch.Generator().manual_seed(1000 * size + rank)
    return torch.randn(size, generator=generator) * torch.exp(2 * torch.randn(size, generator=generator))


def state_arrays(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, np.ndarray]:
    """Everything that must agree bit for bit, by name."""
    arrays = {f"parameter {name}": value for name, value in model.named_parameters()}
    for index, state in optimizer.state_dict()["state"].items():
        arrays.update({f"optimizer {index} {name}": value for name, value in state.items() if value is not None})
    return {name: value.detach().numpy().copy() for name, value in arrays.items()}
