"""Tasks for `fleet train`: small, but with all that two runs can disagree in."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

SAMPLES = 40  # three workers with batches of 4: epochs of 4 steps, padded, the last batch of 2


class Noisy(Dataset[tuple[Tensor, Tensor]]):
    """Samples that are augmented by draws from torch's global generator."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(5)
        self.inputs = torch.randn(count, 1, 8, 8, generator=generator)
        self.targets = torch.randint(0, 10, (count,), generator=generator)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.inputs[index] + 0.1 * torch.randn(1, 8, 8), self.targets[index]


class Small:
    """BatchNorm, dropout, momentum and a schedule; two buckets, so that their rebuilding shows."""

    batch_size = 4
    seed = 3

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(),
            nn.Linear(512, 600), nn.ReLU(), nn.Linear(600, 10),
        )  # fmt: skip

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)

    def scheduler(self, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)

    def dataset(self, train: bool) -> Noisy:
        return Noisy(SAMPLES if train else 10)


class Averaging(Small):
    """The same, drawn to an average of its weights that the task keeps, with a count and the last biases."""

    def __init__(self) -> None:
        self.average: list[Tensor] = []
        self.steps, self.queue = 0, torch.zeros(3, 10)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        far = [(weight - average).square().sum() for weight, average in zip(model.parameters(), self.average)]
        return nn.functional.cross_entropy(model(batch[0]), batch[1]) + 0.01 * sum(far) * self.steps

    @torch.no_grad()
    def after_step(self, model: nn.Module) -> None:
        self.average = self.average or [weight.detach().clone() for weight in model.parameters()]
        for weight, average in zip(model.parameters(), self.average):
            average.lerp_(weight, 0.1)
        self.queue[self.steps % 3] = list(model.parameters())[-1]
        self.steps += 1

    def state(self) -> dict[str, Any]:
        return {"average": self.average, "more": {"steps": self.steps, "queue": self.queue}, "kind": "moving"}

    def load_state(self, state: dict[str, Any]) -> None:
        assert state["kind"] == "moving"
        self.average, self.steps, self.queue = state["average"], state["more"]["steps"], state["more"]["queue"]


class Pair(nn.Module):
    """A generator with BatchNorm and a critic with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 1))
        made: list[nn.Module] = [nn.Linear(4, 16), nn.Unflatten(1, (4, 2, 2)), nn.BatchNorm2d(4), nn.Flatten()]
        self.generator = nn.Sequential(*made, nn.Linear(16, 64))


class Adversarial:
    """A GAN: two optimizers, and a step of its own, every second one of which the generator learns."""

    batch_size = 4
    seed = 3
    steps = 0

    def model(self) -> nn.Module:
        return Pair()

    def optimizers(self, model: Any) -> dict[str, torch.optim.Optimizer]:
        return {name: torch.optim.Adam(getattr(model, name).parameters(), 1e-3) for name in ("critic", "generator")}

    def schedulers(self, optimizers: Any) -> Any:
        return {name: torch.optim.lr_scheduler.ExponentialLR(each, 0.97) for name, each in optimizers.items()}

    def dataset(self, train: bool) -> Any:
        return Plain(SAMPLES) if train else Plain(10)

    def step(self, model: Any, batch: tuple[Tensor, Tensor]) -> Iterator[tuple[str, Tensor]]:
        real = batch[0].flatten(1)
        fake = model.generator(torch.randn(len(real), 4).to(real.device))
        yield "critic", model.critic(fake.detach()).mean() - model.critic(real).mean()
        if self.steps % 2:
            yield "generator", -model.critic(fake).mean()

    def after_step(self, model: nn.Module) -> None:
        self.steps += 1

    def state(self) -> dict[str, int]:
        return {"steps": self.steps}

    def load_state(self, state: dict[str, int]) -> None:
        self.steps = state["steps"]

    def metrics(self, model: Any, batch: tuple[Tensor, Tensor]) -> dict[str, tuple[float, float]]:
        return {"seen as real": (float(model.critic(batch[0].flatten(1)).sum()), float(len(batch[0])))}


class Sentences(Dataset[tuple[Tensor, int]]):
    """Of one to nine words."""

    def __init__(self, count: int) -> None:
        draw = torch.Generator().manual_seed(count)
        lengths = torch.randint(1, 10, (count,), generator=draw)
        self.words = [torch.randint(1, 10, (int(length),), generator=draw) for length in lengths]

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.words[index], int(self.words[index].sum() % 3)


class Ragged:
    """Sentences of any length, padded to the longest of their batch."""

    batch_size = 4
    seed = 3

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Embedding(10, 8, padding_idx=0), nn.Dropout(0.2), Mean(), nn.Linear(8, 3))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), 1e-2)

    def dataset(self, train: bool) -> Sentences:
        return Sentences(SAMPLES if train else 10)

    def collate(self, samples: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
        words, targets = zip(*samples)
        return nn.utils.rnn.pad_sequence(list(words), batch_first=True), torch.tensor(targets)

    def largest_sample(self) -> tuple[Tensor, int]:
        return torch.zeros(9, dtype=torch.int64), 0


class Endless(Small):
    """Makes its batches itself, and does not say how large a sample may be."""

    def collate(self, samples: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
        raise NotImplementedError


class Halved(Small):
    """Has a step of its own, and no optimizers."""

    def step(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Iterator[tuple[str, Tensor]]:
        raise NotImplementedError


class Longer(Ragged):
    """Has samples that are larger than the largest."""

    def dataset(self, train: bool) -> Sentences:
        sentences = super().dataset(train)
        sentences.words[1] = torch.ones(1000, dtype=torch.int64)
        return sentences


class Mean(nn.Module):
    def forward(self, words: Tensor) -> Tensor:
        return words.mean(1)


class Plain(Noisy):
    """Without draws."""

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.inputs[index], self.targets[index]


class Forgetful(Small):
    """Gives state, and takes none."""

    def state(self) -> dict[str, Any]:
        return {}


class Otherwise(Small):
    """Its methods take something else than they are given."""

    def dataset(self) -> Any:  # type: ignore[override]
        return super().dataset(True)

    def metrics(self, batch: Any) -> dict[str, tuple[float, float]]:
        return {}


class Parts(Small):
    """The same with accumulation and clipping."""

    name = "Small"
    accumulate = 2
    clip_norm = 1.0


class Other(Small):
    seed = 4


class Frozen(Small):
    """The first layer is not trained."""

    def model(self) -> nn.Module:
        model = super().model()
        model[0].requires_grad_(False)  # type: ignore[index]
        return model


class Untracked(Small):
    """BatchNorm without running statistics."""

    def model(self) -> nn.Module:
        model = super().model()
        assert isinstance(model, nn.Sequential)
        model[1] = nn.BatchNorm2d(8, track_running_stats=False)
        return model


class Adam(Small):
    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), 1e-3)


class Greedy(Small):
    """The optimizer's settings are out of range."""

    clip_norm = -1.0


class Empty(Small):
    def dataset(self, train: bool) -> Noisy:
        return Noisy(0)


class _Torn(Noisy):
    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index == 7:
            raise KeyError("page 7 is torn out")
        return super().__getitem__(index)


class Torn(Small):
    """One sample, of the first epoch's second half, raises."""

    def dataset(self, train: bool) -> Noisy:
        return _Torn(SAMPLES)


class _Fatal(Noisy):
    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Fatal(Small):
    """One sample ends the process that reads it."""

    def dataset(self, train: bool) -> Noisy:
        return _Fatal(SAMPLES)


class _Tampered(nn.ReLU):
    """Multiplies its fifth output by a little more than 1."""

    calls = 0

    def forward(self, input: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(input) * (1 + 1e-6 if self.calls == 5 else 1)


class _Plain(_Tampered):
    calls = -1_000_000


class Tampered(Small):
    """In one process: virtual worker 1 of 3 is tampered with in step 1."""

    relu: type[nn.Module] = _Tampered
    scratch = ("calls",)

    def model(self) -> nn.Module:
        model = super().model()
        assert isinstance(model, nn.Sequential)
        model[2] = self.relu()
        return model


class Untampered(Tampered):
    relu = _Plain
