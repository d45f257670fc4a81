"""Rules of the contract, broken on purpose: if such runs still agreed, the tests of equality would show nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from trainers import VirtualWorker
from trainers.reduce.buckets import Layout
from trainers.reduce.ordered_reduce import LocalSum
from trainers.repeatable.determinism import LEVELS


def never_rebuild(parameters: Any, ready: Any, used: Any) -> Layout:
    return Layout(Layout.first(parameters).buckets, tuple(used))


def divide(gradients: Sequence[Tensor], factor: float, outs: Sequence[Tensor]) -> None:
    for gradient, out in zip(gradients, outs):
        torch.div(gradient, round(1 / factor), out=out)


def add_in_rank_order(self: LocalSum, vectors: Sequence[Tensor]) -> Tensor:
    for vector in vectors[1:]:
        vectors[0].add_(vector)
    return vectors[0]


def share_random_state(self: VirtualWorker) -> None:
    if self.buffers and not self.is_at_home:
        self.fill()


def last_workers_buffers(self: Any) -> list[Tensor]:
    return list(self.workers[-1].buffers)


BROKEN_RULES: dict[str, tuple[str, Any]] = {
    "sum in rank order": ("trainers.reduce.ordered_reduce.LocalSum.sum", add_in_rank_order),
    "no rebuilt buckets": ("trainers.reduce.buckets.Layout.rebuilt", never_rebuild),
    "division for multiplication": ("trainers.reduce.gradients.scale", divide),
    "one random state for all": ("trainers.step.virtual_worker.VirtualWorker.__enter__", share_random_state),
    "no base seed of the loader": ("trainers.step.virtual_worker.VirtualWorker.open_loader", lambda self: None),
    "buffers of another worker": ("trainers.job.trainer.Trainer._first_workers_buffers", last_workers_buffers),
    "batches in one part": ("trainers.task.task_options.StepOptions.parts", lambda self, batch: [(batch, 1.0)]),
    "full precision": ("trainers.task.task_options.StepOptions.precision", lambda self, device: nullcontext()),
    "no clipping": ("trainers.task.task_options.StepOptions.before_update", lambda self, task, model: None),
    "D0": ("trainers.repeatable.determinism.LEVELS", {**LEVELS, "D1": LEVELS["D0"]}),
}


@contextmanager
def broken(rule: str | None) -> Iterator[None]:
    """Break a rule in this process, for as long as the context lasts."""
    with pytest.MonkeyPatch.context() as patch:
        if rule is not None:
            patch.setattr(*BROKEN_RULES[rule])
        yield
