"""A trial as people train it for other libraries: a plain loop, whose log has what it came to.

Pictures are tensors in memory, or those of a `Dataset` that crops and flips each when a `DataLoader` asks for it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from benchmarks.plain_script import Augmented
from benchmarks.searched.peers.plan import EVALUATED, Plan
from preprocess.sources.arrays import read_idx
from trainers.zoo import CNN

LOG = "epochs.jsonl"
MEAN, STD = 0.2860, 0.3530
LOADERS = 0
"""Processes of a trial's DataLoader: two trials have the cores already."""


class PlainTraining:
    """One trial, which can be saved and gone on with.

    Args:
        folder: with the plan; the log is there.
        trial: its number.
    """

    def __init__(self, folder: Path, trial: int) -> None:
        self._folder, self._trial, self.plan = folder, trial, Plan.read(folder)
        torch.set_num_threads(1)
        values = self.plan.trials[trial]
        torch.manual_seed(self.plan.seed)
        self._model = CNN(channels=1, widths=values["widths"], classes=10, batch_norm=values["batch_norm"])
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=values["lr"], momentum=values["momentum"])
        self._train, self._held_out = (_tensors(self.plan.files[part]) for part in ("train", "held_out"))
        self._augmented: Augmented | None = None
        if self.plan.padding is not None:
            pictures, labels = (read_idx(self.plan.files["train"][kind]) for kind in ("images", "labels"))
            self._augmented = Augmented(pictures, labels, self.plan.padding, MEAN, STD)
        self.epoch = 0

    def epochs(self, until: int) -> Iterator[float]:
        """Train until so many epochs; yields the accuracy after each."""
        while self.epoch < until:
            begin = time.perf_counter()
            self._train_one()
            self.epoch += 1
            accuracy = self._accuracy()
            self._note(accuracy, time.perf_counter() - begin)
            yield accuracy

    def _train_one(self) -> None:
        self._model.train()
        for inputs, labels in self._batches():
            self._optimizer.zero_grad()
            nn.functional.cross_entropy(self._model(inputs), labels).backward()
            self._optimizer.step()

    def _batches(self) -> Iterable[tuple[Tensor, Tensor]]:
        seed = self.plan.seed + self.epoch
        if self._augmented is not None:
            torch.manual_seed(seed)  # of crops and flips, which are then the same after a restart
            generator = torch.Generator().manual_seed(seed)
            return DataLoader(self._augmented, self.plan.batch, True, num_workers=LOADERS, generator=generator)
        inputs, labels = self._train
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
        return ((inputs[batch], labels[batch]) for batch in order.split(self.plan.batch))

    @torch.no_grad()
    def _accuracy(self) -> float:
        self._model.eval()
        inputs, labels = self._held_out
        right = sum(
            int((self._model(part).argmax(1) == truth).sum())
            for part, truth in zip(inputs.split(EVALUATED), labels.split(EVALUATED))
        )
        return right / len(labels)

    def _note(self, accuracy: float, seconds: float) -> None:
        line = {
            "trial": self._trial,
            "epoch": self.epoch,
            "accuracy": accuracy,
            "seconds": seconds,
            "unix": time.time(),
        }
        with open(self._folder / LOG, "a") as log:
            log.write(json.dumps(line) + "\n")

    def save(self, path: Path) -> None:
        """Write where it stands, whole or not at all."""
        state = {"model": self._model.state_dict(), "optimizer": self._optimizer.state_dict(), "epoch": self.epoch}
        torch.save(state, path.with_suffix(".new"))
        os.replace(path.with_suffix(".new"), path)

    def load(self, path: Path) -> None:
        """Go on from there."""
        state: dict[str, Any] = torch.load(path, weights_only=True)
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.epoch = state["epoch"]

    def perturb(self, factor: float) -> None:
        """Multiply the learning rate."""
        for group in self._optimizer.param_groups:
            group["lr"] *= factor


def _tensors(files: dict[str, str]) -> tuple[Tensor, Tensor]:
    images, labels = (torch.from_numpy(read_idx(files[kind]).copy()) for kind in ("images", "labels"))
    return ((images.float() / 255 - MEAN) / STD).unsqueeze(1), labels.long()
