"""GANs for the tests of equality: two networks, two optimizers, one batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.optim import Adam, Optimizer, lr_scheduler

from tests.trainers.support.equality_data import Columns, images

NOISE = 8


class Gan(nn.Module):
    """A generator with BatchNorm, and a critic with dropout whose gradients fill two buckets."""

    def __init__(self) -> None:
        super().__init__()
        made: list[nn.Module] = [nn.Linear(NOISE, 128), nn.Unflatten(1, (8, 4, 4)), nn.BatchNorm2d(8), nn.ReLU()]
        self.generator = nn.Sequential(*made, nn.Flatten(), nn.Linear(128, 256))
        layers: list[nn.Module] = [nn.Linear(256, 300), nn.LeakyReLU(0.2), nn.Dropout(0.2), nn.Linear(300, 1000)]
        self.critic = nn.Sequential(*layers, nn.LeakyReLU(0.2), nn.Linear(1000, 1))


def judged(logits: Tensor, real: float) -> Tensor:
    return binary_cross_entropy_with_logits(logits, torch.full_like(logits, real))


@dataclass(frozen=True)
class GanTask:
    """every: the critic's updates for each of the generator's."""

    name: str
    every: int = 1
    clip_norm: float | None = None
    batch_size: int = 4
    seed: int = 23
    memory: dict[str, int] = field(default_factory=lambda: {"steps": 0})

    def model(self) -> Gan:
        return Gan()

    def optimizers(self, model: Any) -> dict[str, Optimizer]:
        return {
            "critic": Adam(model.critic.parameters(), 2e-3, betas=(0.5, 0.9)),
            "generator": Adam(model.generator.parameters(), 1e-3, betas=(0.5, 0.9)),
        }

    def schedulers(self, optimizers: dict[str, Optimizer]) -> dict[str, lr_scheduler.LRScheduler]:
        return {"generator": lr_scheduler.ExponentialLR(optimizers["generator"], 0.9)}

    def dataset(self, train: bool) -> Columns | None:
        return images("gan", channels=1) if train else None

    def step(self, model: Any, batch: tuple[Tensor, Tensor]) -> Iterator[tuple[str, Tensor]]:
        real = batch[0].flatten(1)
        fake = model.generator(torch.randn(len(real), NOISE))
        yield "critic", judged(model.critic(real), 1.0) + judged(model.critic(fake.detach()), 0.0)
        if self.memory["steps"] % self.every == self.every - 1:
            yield "generator", judged(model.critic(fake), 1.0)

    def after_step(self, model: nn.Module) -> None:
        self.memory["steps"] += 1

    def state(self) -> dict[str, int]:
        return self.memory

    def load_state(self, state: dict[str, int]) -> None:
        self.memory.update(state)

    def fresh(self) -> GanTask:
        """The task as it is before it trains."""
        return replace(self, memory={"steps": 0})


GANS = {
    task.name: task
    for task in (GanTask("gan"), GanTask("gan clipped", clip_norm=0.2), GanTask("critic more often", every=3))
}
