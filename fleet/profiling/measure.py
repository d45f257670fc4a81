"""One measurement, from inside a member of the group: steps of training on one made-up batch, the last of them
timed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fleet.profiling.known_ids import least_table
from preprocess import SampleLayout
from trainers import Batch, Trainer
from trainers.task.task import move

LEAST_TIMED = 3
_BYTES = 251  # a prime, so that rows of a batch differ


@dataclass(frozen=True)
class Timing:
    """Samples/s of the group, over how many timed steps, and what the measurement took in seconds."""

    rate: float
    batches: int
    seconds: float


def measure(trainer: Trainer, layout: SampleLayout, batches: int, timed: int, budget_seconds: float) -> Timing:
    """Train `batches` steps, time the last `timed` (48 and 20 in FLEET, MLSys'20, Appendix B.3).

    A slow job that would not end within `budget_seconds` trains fewer steps, at least LEAST_TIMED of them timed; the
    members agree on that after the second step. The first says nothing: devices load their libraries in it.
    """
    _leave_schedules(trainer)
    batch = batch_of(trainer, layout)
    own = [batch] * len(trainer.workers)
    begin = time.perf_counter()
    trainer.step(own)
    warming = _seconds(trainer, begin)
    trainer.step(own)
    second = _seconds(trainer, begin) - warming
    fitting = 1 + int(max(0.0, budget_seconds - warming) / max(second, 1e-9))
    fitting = trainer.group.agree(max(LEAST_TIMED + 1, min(batches, fitting)))
    timed = max(LEAST_TIMED, min(timed, fitting - 2))
    for _ in range(max(0, fitting - 2 - timed)):
        trainer.step(own)
    start = time.perf_counter()
    for _ in range(timed):
        trainer.step(own)
    seconds = _seconds(trainer, start)
    samples = timed * trainer.virtual_workers * trainer.batch_size
    return Timing(samples / seconds, timed, time.perf_counter() - begin)


def keep_busy(trainer: Trainer, layout: SampleLayout, is_over: Callable[[], bool]) -> None:
    """Train a step on such a batch, and more until `is_over`: what is measured on the same device shares it so."""
    _leave_schedules(trainer)
    own = [batch_of(trainer, layout)] * len(trainer.workers)
    trainer.step(own)
    while not is_over():
        trainer.step(own)


def _leave_schedules(trainer: Trainer) -> None:
    """Step no schedule of a learning rate: it may end before the measurement does, and OneCycleLR raises then."""
    for update in trainer.updates:
        update.schedule = None


def batch_of(trainer: Trainer, layout: SampleLayout, count: int = 0) -> Batch:
    """What is trained on: of a task that collates samples itself, its largest ones.

    count: samples; 0: of the trainer's batch.
    """
    largest = largest_collated(trainer.task, count)
    if largest is not None:
        moved: Batch = move(largest, trainer.device)
        return moved
    return made_up_batch(layout, count or trainer.batch_size, trainer.device, _numbers(trainer, layout))


def largest_collated(task: Any, count: int = 0) -> Batch | None:
    """A batch of a task's largest sample, over and over; None where the task does not collate samples itself."""
    if not hasattr(task, "collate"):
        return None
    batch: Batch = task.collate([task.largest_sample() for _ in range(count or task.batch_size)])
    return batch


def made_up_batch(layout: SampleLayout, count: int, device: torch.device, numbers: int = _BYTES) -> Batch:
    """A batch of the right shape and dtype, always the same: ramps of numbers below `numbers`, and zero as target."""
    shape, kind = (count, *layout.input_shape), getattr(torch, layout.input_dtype)
    targets = torch.zeros((count, *layout.target_shape), dtype=getattr(torch, layout.target_dtype), device=device)
    if device.type == "meta":  # which has no numbers, and whose `arange` loads torch's compiler
        return torch.empty(shape, dtype=kind, device=device), targets
    inputs = torch.arange(math.prod(shape), dtype=torch.int64, device=device) % numbers
    return inputs.to(kind).reshape(shape), targets


def _numbers(trainer: Trainer, layout: SampleLayout) -> int:
    """How many numbers a batch may be made of: they may be ids, and each table of the model has to know them.

    Where inputs are whole numbers and no more is known of them, they are all zero, which every vocabulary has.
    """
    kind = getattr(torch, layout.input_dtype)
    if kind.is_floating_point:
        return _BYTES
    known = least_table(trainer.task, made_up_batch(layout, trainer.batch_size, torch.device("meta")))
    tables = (module for module in trainer.model.modules() if isinstance(module, nn.Embedding | nn.EmbeddingBag))
    least = known or min((module.num_embeddings for module in tables), default=None)
    return min(_BYTES, least or (_BYTES if kind == torch.uint8 else 1))  # not the largest: some models add to ids


def settle(trainer: Trainer) -> None:
    """Wait until the device has done what it was given."""
    if trainer.device.type != "cpu":
        torch.get_device_module(trainer.device).synchronize(trainer.device)


def _seconds(trainer: Trainer, since: float) -> float:
    """Seconds since then, once the device is through."""
    settle(trainer)
    return time.perf_counter() - since
