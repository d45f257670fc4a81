"""The yardstick of tasks with several optimizers: each part of the model under a DistributedDataParallel of its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainers.proof.ddp import DdpRank, recorded_order
from trainers.proof.tensor_trace import Recorder
from trainers.reduce.buckets import Layout
from trainers.step.batch_parts import BatchLoss
from trainers.task.parts import Rule, rules_of
from trainers.task.task import Batch, samples_in


class DdpRankOfParts(DdpRank):
    """One rank's process; the optimizer and the schedule are those of the first part."""

    def _wrap(self) -> Rule:
        self._rules = rules_of(self._task, self.model)
        self._plain = {name: self.model.get_submodule(name) for name in self._rules}
        self._wrapped = {name: DistributedDataParallel(part) for name, part in self._plain.items()}
        self._trained = {name: [p for p in part.parameters() if p.requires_grad] for name, part in self._plain.items()}
        self._layouts: dict[str, Layout] = {}
        return next(iter(self._rules.values()))

    def _step(self, batch: Batch, recorder: Recorder | None) -> BatchLoss:
        """Run the phases of the task's own step, each with an update of its part; return the sum of their losses."""
        task: Any = self._task
        phases, total = task.step(self.model, batch), 0.0
        while True:
            self._put(self._wrapped)
            with self._options.precision(self._device):
                phase = next(phases, None)
            if phase is not None:
                self._backward(*phase)
            self._put(self._plain)
            if phase is None:
                return BatchLoss(torch.tensor(total, dtype=torch.float64), samples_in(batch))
            self._update(phase[0])
            total += phase[1].item()

    def _backward(self, name: str, loss: Any) -> None:
        trained = self._trained[name]
        self._rules[name][0].zero_grad()
        order: AbstractContextManager[list[int]] = nullcontext([]) if name in self._layouts else recorded_order(trained)
        with order as ready:
            loss.backward(inputs=[parameter for parameter in trained if parameter.requires_grad])
        if name not in self._layouts:
            used = [parameter.grad is not None for parameter in trained]
            self._layouts[name] = Layout.rebuilt(trained, ready, used)

    def _update(self, name: str) -> None:
        optimizer, schedule = self._rules[name]
        self._options.before_update(self._task, self.model)
        self._let(optimizer, schedule)
        self._plain[name].zero_grad()

    def _schedules(self) -> list[torch.optim.lr_scheduler.LRScheduler]:
        return [schedule for _, schedule in self._rules.values() if schedule is not None]

    def _put(self, parts: Mapping[str, nn.Module]) -> None:
        """Let the model's parts be these."""
        for name, part in parts.items():
            self.model._modules[name] = part

    def _updates(self) -> dict[str, Any]:
        trees = {
            name: {
                "optimizer": optimizer.state_dict(),
                "schedule": None if schedule is None else schedule.state_dict(),
                "layout": (self._layouts.get(name) or Layout.first(self._trained[name])).as_tree(),
            }
            for name, (optimizer, schedule) in self._rules.items()
        }
        first, *others = trees
        return {**trees[first], "parts": {name: trees[name] for name in others} or None}
