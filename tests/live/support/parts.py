"""What the ensembles of these tests are made of; copied beside each spec, so that the ranks import it from there."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from trainers.zoo import MLP

TRAINING, HELD_OUT, SIDE, CLASSES = 79, 27, 12, 10
MARK = 128


def own_rank() -> int:
    """This process's rank, as Open MPI tells it."""
    return int(os.environ["OMPI_COMM_WORLD_RANK"])


class Pictures:
    """Dim noise with a bright patch in the middle whose brightness is the picture's number: no crop or flip hides it.

    Args:
        train: the training pictures, else the held-out ones.
        broken: numbers of pictures that cannot be read.
        broken_on: the only rank that cannot read them.
        seconds: how long reading one takes at least.
    """

    def __init__(
        self, train: bool, broken: Collection[int] = (), broken_on: int | None = None, seconds: float = 0.0
    ) -> None:
        count = TRAINING if train else HELD_OUT
        rng = np.random.default_rng(int(train))
        self._pictures = rng.integers(0, MARK, (count, SIDE, SIDE, 1), dtype=np.uint8)
        self._pictures[:, 5:8, 5:8, 0] = MARK + np.arange(count, dtype=np.uint8)[:, None, None]
        self._targets = rng.integers(0, CLASSES, count)
        self._broken, self._broken_on, self._seconds = frozenset(broken), broken_on, seconds
        self._gate = None if train else Gate()

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        if index in self._broken and self._broken_on in (None, own_rank()):
            raise OSError(f"picture {index} lies at the bottom of the sea")
        if self._gate is not None:
            self._gate.pass_one()
        time.sleep(self._seconds)
        return self._pictures[index], int(self._targets[index])


class Gate:
    """Holds the held-out pictures back until a file is there, so that a test meets a run in the middle.

    GATE names that file; GATE_AFTER says how many epochs' pictures pass before. No GATE, no hold.
    """

    def __init__(self) -> None:
        self._path = os.environ.get("GATE")
        looks = 5  # at a picture or two, when the data set is opened, and at three that are made again
        self._left = looks + HELD_OUT * int(os.environ.get("GATE_AFTER", "0"))

    def pass_one(self) -> None:
        if _is_tried_or_compared():
            return
        self._left -= 1
        while self._path is not None and self._left < 0:
            if Path(self._path).exists():
                self._path = None
                return
            time.sleep(0.02)


def _is_tried_or_compared() -> bool:
    """Whether a picture is made to try metrics, or for a fingerprint: as many are as there is time for."""
    before = ("fleet.session.input_checks", "preprocess.making.fingerprints", "preprocess.samples.fingerprint")
    return any(frame.f_globals.get("__name__") in before for frame, _ in traceback.walk_stack(None))


def numbers_of(images: Tensor) -> Tensor:
    """The pictures' numbers, of images scaled to 0..1."""
    return ((images.amax(dim=(1, 2, 3)) * 255).round().long() - MARK).clamp(0, TRAINING - 1)


class Counting(nn.Module):
    """A classifier that keeps book: `seen[k]` sinks by the same amount each time picture k is trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = MLP(SIDE * SIDE, (8,), CLASSES)
        self.seen = nn.Parameter(torch.zeros(TRAINING))

    def forward(self, images: Tensor) -> Tensor:
        """(samples, classes + 2): the logits, the books of these pictures, their numbers."""
        numbers = numbers_of(images)
        return torch.cat([self.classifier(images), self.seen[numbers, None], numbers[:, None].float()], dim=1)


def counted(outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of `Counting`: its gradient in `seen[k]` is how often picture k is in the batch."""
    return cross_entropy(outputs[:, :CLASSES], targets) + outputs[:, CLASSES].sum()


def number(outputs: Tensor, targets: Tensor) -> tuple[float, float]:
    """A metric: the mean of the pictures' numbers."""
    return float(outputs[:, CLASSES + 1].double().sum()), float(len(targets))


def together(outputs: Tensor, targets: Tensor, file: str) -> tuple[float, float]:
    """A metric that writes into a file of its rank how many samples are evaluated together."""
    with open(f"{file}-{os.environ.get('OMPI_COMM_WORLD_RANK')}", "a") as lines:
        print(len(outputs), file=lines)
    return 0.0, float(len(outputs))


class Faulty(nn.Module):
    """A network whose fault shows in one training picture alone: in one virtual worker, at one step of an epoch.

    Args:
        fault: "raise", "nan", "memory", "kill", "stopped", "stuck", or "index", which a GPU finds out in a kernel.
        picture: the one in which it shows; None: in all.
    """

    def __init__(self, fault: str, picture: int | None = 40) -> None:
        super().__init__()
        self.classifier = MLP(SIDE * SIDE, (8,), CLASSES)
        self.fault, self.picture = fault, picture

    def forward(self, images: Tensor) -> Tensor:
        outputs = self.classifier(images)
        if not self.training or images.device.type == "meta":
            return outputs
        if self.picture is None or bool((numbers_of(images) == self.picture).any()):
            return self._go_wrong(outputs)
        return outputs

    def _go_wrong(self, outputs: Tensor) -> Tensor:
        if self.fault == "raise":
            raise RuntimeError("the hull leaks")
        if self.fault == "memory":
            raise MemoryError("no room for the cargo")
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.fault == "stuck":
            threading.Event().wait()
        if self.fault == "index":
            return outputs + nn.functional.embedding(torch.full((1,), 7, device=outputs.device), outputs[:1].detach())
        return outputs * torch.nan


class Pooled(nn.Module):
    """Uses an operator that has no deterministic form on GPUs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8, CLASSES))

    def forward(self, images: Tensor) -> Tensor:
        return torch.as_tensor(self.layers(images.reshape(-1, 1, SIDE, SIDE)))


class Slow(nn.Module):
    """Takes half a second for a step."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(SIDE**2, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        time.sleep(0.5 if images.device.type != "meta" else 0.0)
        return torch.as_tensor(self.layer(images.flatten(1)))


class Plain:
    """A user's task: a plain class with its own data set and nothing but what is required."""

    def model(self) -> nn.Module:
        return MLP(SIDE * SIDE, (6,), CLASSES)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.05)

    def dataset(self, train: bool) -> Any:
        return Vectors(train)


class NothingHeldOut(Plain):
    """Brings samples to train on alone."""

    def dataset(self, train: bool) -> Any:
        return Vectors(train) if train else None


class Vectors:
    """Samples that are no images: float vectors."""

    def __init__(self, train: bool) -> None:
        rng = np.random.default_rng(7 + train)
        count = TRAINING if train else HELD_OUT
        self._inputs = rng.normal(size=(count, SIDE * SIDE)).astype(np.float32)
        self._targets = rng.integers(0, CLASSES, count)

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return self._inputs[index], int(self._targets[index])
