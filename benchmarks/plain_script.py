"""A plain PyTorch script that trains one network on IDX files, as a user without fleet writes it.

`python -m benchmarks.plain_script NETWORK`, where NETWORK is JSON: `Network`'s fields. It knows nothing of fleet; the
networks are those of `trainers.zoo`, which the ensemble trains, too.
"""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, TensorDataset


@dataclass(frozen=True)
class Network:
    """What is trained, and how.

    Attributes:
        model: class, as module:Name.
        arguments: of the class.
        lr: of AdamW.
        max_lr, total_steps: of OneCycleLR.
        batch_size, epochs, seed: as in the ensemble; the batch is that of all virtual workers together.
        files: part -> "images" and "labels" -> path.
        padding: pixels around a picture before it is cropped.
        mean, std: of a pixel, 0 to 1.
        workers: processes of the DataLoader.
    """

    model: str
    arguments: dict[str, Any]
    lr: float
    max_lr: float
    total_steps: int
    batch_size: int
    epochs: int
    seed: int
    files: dict[str, dict[str, str]]
    padding: int
    mean: float
    std: float
    workers: int = 0


class Augmented(Dataset[tuple[Tensor, int]]):
    """Pictures that are cropped and flipped at random; padded and normalised once, beforehand."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, padding: int, mean: float, std: float) -> None:
        self._side, self._places = images.shape[1], 2 * padding + 1
        around = (padding, padding)
        self._images = torch.from_numpy(_normalised(np.pad(images, ((0, 0), around, around)), mean, std))
        self._labels = labels.tolist()

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        place, flip = divmod(int(torch.randint(2 * self._places**2, ())), 2)
        top, left = divmod(place, self._places)
        image = self._images[index, :, top : top + self._side, left : left + self._side]
        return image.flip(-1) if flip else image, self._labels[index]


def train_network(network: Network) -> float:
    """Train it, evaluating after each epoch; the last accuracy on the held-out pictures."""
    torch.manual_seed(network.seed)
    train = Augmented(*_read(network.files["train"]), network.padding, network.mean, network.std)
    images, labels = _read(network.files["held_out"])
    pictures = torch.from_numpy(_normalised(images, network.mean, network.std))
    held_out = TensorDataset(pictures, torch.from_numpy(labels.astype(np.int64)))
    module, _, name = network.model.partition(":")
    model: nn.Module = getattr(import_module(module), name)(**network.arguments)
    optimizer = torch.optim.AdamW(model.parameters(), lr=network.lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, network.max_lr, total_steps=network.total_steps)
    loader = DataLoader(train, network.batch_size, shuffle=True, num_workers=network.workers)
    accuracy = 0.0
    for _ in range(network.epochs):
        model.train()
        for inputs, targets in loader:
            optimizer.zero_grad()
            cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            schedule.step()
        accuracy = _evaluated(model, DataLoader(held_out, network.batch_size))
    return accuracy


def _evaluated(model: nn.Module, loader: DataLoader[Any]) -> float:
    """Share of the pictures that are recognised; the loss is computed, too, as the ensemble's runs do."""
    model.eval()
    right, count, loss = 0, 0, 0.0
    with torch.no_grad():
        for inputs, targets in loader:
            outputs = model(inputs)
            loss += float(cross_entropy(outputs, targets, reduction="sum"))
            right += int((outputs.argmax(1) == targets).sum())
            count += len(targets)
    return right / count


def _read(files: dict[str, str]) -> tuple[np.ndarray, np.ndarray]:
    images, labels = (gzip.decompress(Path(files[name]).read_bytes()) for name in ("images", "labels"))
    count, height, width = np.frombuffer(images, ">u4", 3, 4)
    pictures = np.frombuffer(images, np.uint8, offset=16).reshape(count, height, width)
    return pictures, np.frombuffer(labels, np.uint8, offset=8)


def _normalised(images: np.ndarray, mean: float, std: float) -> np.ndarray:
    """Float32 of shape (pictures, 1, height, width)."""
    values: np.ndarray = ((images.astype(np.float32) / 255 - mean) / std)[:, None]
    return values


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({"accuracy": train_network(Network(**json.loads(sys.argv[1])))}))
