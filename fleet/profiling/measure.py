"""One measurement, from inside a member of the group: steps of training on one made-up batch, the last of them
timed.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch
from torch import nn

from preprocess import SampleLayout
from trainers import Batch, Trainer

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
    members agree on that after the first step, which also warms up.
    """
    batch = made_up_batch(layout, trainer.batch_size, trainer.device, _numbers(trainer.model, layout))
    own = [batch] * len(trainer.workers)
    begin = time.perf_counter()
    trainer.step(own)
    trainer.step(own)
    warm = _settle(trainer, begin) / 2
    fitting = trainer.group.agree(max(LEAST_TIMED + 1, min(batches, int(budget_seconds / max(warm, 1e-9)))))
    timed = max(LEAST_TIMED, min(timed, fitting - 2))
    for _ in range(max(0, fitting - 2 - timed)):
        trainer.step(own)
    start = time.perf_counter()
    for _ in range(timed):
        trainer.step(own)
    seconds = _settle(trainer, start)
    samples = timed * trainer.virtual_workers * trainer.batch_size
    return Timing(samples / seconds, timed, time.perf_counter() - begin)


def made_up_batch(layout: SampleLayout, count: int, device: torch.device, numbers: int = _BYTES) -> Batch:
    """A batch of the right shape and dtype, the same each time: ramps of `numbers` numbers from 0 on; zero as target."""
    shape, kind = (count, *layout.input_shape), getattr(torch, layout.input_dtype)
    inputs = torch.arange(math.prod(shape), dtype=torch.int64) % numbers
    targets = torch.zeros((count, *layout.target_shape), dtype=getattr(torch, layout.target_dtype))
    return inputs.to(kind).reshape(shape).to(device), targets.to(device)


def _numbers(model: nn.Module, layout: SampleLayout) -> int:
    """How many numbers a batch may be made of: they may be ids, and each embedding has to know them.

    Where inputs are whole numbers and no more is known of them, they are all zero, which every vocabulary has.
    """
    known = [module.num_embeddings for module in model.modules() if isinstance(module, nn.Embedding | nn.EmbeddingBag)]
    whole = layout.input_dtype != "uint8" and not getattr(torch, layout.input_dtype).is_floating_point
    return min([_BYTES, *known]) if known or not whole else 1


def _settle(trainer: Trainer, since: float) -> float:
    """Seconds since then, once the device has done what it was given."""
    if trainer.device.type != "cpu":
        torch.get_device_module(trainer.device).synchronize(trainer.device)
    return time.perf_counter() - since
