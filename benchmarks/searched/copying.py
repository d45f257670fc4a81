"""What it takes that a member of a population goes on from another one's weights."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

import torch
from torch import nn

from benchmarks.bars import at_most
from fleet.search import Copy, Decision
from fleet.session.search.inheriting import Inheriting
from trainers import Checkpoint, Group, Trainer, file_name, write
from trainers.zoo import CNN, ResNet

REPETITIONS = 7
CLASSES = 10
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "CNN": lambda: CNN(channels=1, widths=[16, 32], classes=CLASSES),
    "ResNet-18": lambda: ResNet(classes=CLASSES, channels=1),
}
_VALUES = {"optimizer.arguments.lr": 0.002}


class _Member:
    """What a member trains."""

    seed, batch_size = 0, 8

    def __init__(self, name: str) -> None:
        self.name = name

    def model(self) -> nn.Module:
        """The network of its name."""
        return NETWORKS[self.name]()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """AdamW, whose state is twice as large as the weights."""
        return torch.optim.AdamW(model.parameters(), lr=0.001)

    def dataset(self, train: bool) -> Any:
        """None: the batches are made up."""


def measure(repetitions: int) -> dict[str, Any]:
    """Let a member take another one's weights, again and again.

    Args:
        repetitions: 0: REPETITIONS.

    Returns:
        {"bars": [...], "tables": [...]}
    """
    rows, found = [], {}
    for name in NETWORKS:
        saved = _trained(name)
        times = [_copied(saved) for _ in range(repetitions or REPETITIONS)]
        seconds, cpu = (statistics.median(each) for each in zip(*times))
        size = sum(value.numel() * value.element_size() for value in saved.parameters.values())
        rows.append([name, round(size / 1e6, 1), round(1e3 * seconds, 1), round(1e3 * cpu, 1)])
        found[name] = seconds
    columns = ["network", "weights, MB", "ms", "ms of rank 0's processor"]
    return {
        "bars": [at_most(f"a copy of the weights and optimizer of a {name}, s", found[name], 1.0) for name in NETWORKS],
        "tables": [{"title": "a member takes another one's weights", "columns": columns, "rows": rows}],
    }


def _trained(name: str) -> Checkpoint:
    """The state of a network after one step."""
    with Group.alone() as group:
        trainer = Trainer(_Member(name), 1, group)
        with trainer.reducing():
            trainer.step([(torch.rand(8, 1, 32, 32), torch.arange(8) % CLASSES)])
        trainer.finish_epoch({})
        saved = trainer.snapshot()
    assert saved is not None, "a group of one has a master"
    return saved


def _copied(saved: Checkpoint) -> tuple[float, float]:
    """Seconds, and those of the processor, in which a decided copy is carried out."""
    with tempfile.TemporaryDirectory(prefix="copying-") as name:
        inheriting = Inheriting(str, lambda job: Path(name) / job)
        for member in range(2):
            write(Path(name) / str(member) / file_name(saved), saved)
            inheriting.told(member, 1)
        begin, cpu = perf_counter(), thread_time()
        inheriting.carry_out(Decision(0, 0, 1, 2, "resume", Copy(1, 1, _VALUES)))
        return perf_counter() - begin, thread_time() - cpu
