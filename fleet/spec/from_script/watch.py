"""Watching a script train: its first step is looked at from outside, and its second ends it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader

from fleet.spec.from_script.loader_names import names_around
from fleet.spec.from_script.loops import epochs_around
from fleet.spec.from_script.losses import Losses
from fleet.spec.from_script.makings import Makings


class Enough(BaseException):
    """The script has shown what it trains."""


@dataclass
class Step:
    """What a script did in its first step.

    Attributes:
        optimizer: whose step it was.
        loader, batch: what gave the batch, and the batch; None: no DataLoader.
        loss: what backward began from; passes: how many backward passes came before the step.
        calls: modules were called so, by id: the module, its input, its output.
        losses: how tensors came about.
        clip: the name of what clips gradients, and its bound.
        epochs: how often the loop around the batches runs, None: nobody knows.
        names: what the script calls its loaders and their data sets, by id.
    """

    optimizer: torch.optim.Optimizer
    loader: Any
    batch: Any
    loss: Any
    passes: int
    calls: dict[int, tuple[Any, Any, Any]]
    losses: Losses
    clip: tuple[str, Any] | None
    epochs: int | None
    names: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


@dataclass
class Watch:
    """Watches the thread that enters it.

    Attributes:
        makings: who made what.
        step: the first step, as soon as it came.
        others: further optimizers that stepped.
        seed: the first number with which torch was seeded.
        stepped_schedules: ids of those that were stepped between the first two steps.
        loaded: networks into which weights were read; compiled: those that torch.compile took.
    """

    makings: Makings
    step: Step | None = None
    others: list[torch.optim.Optimizer] = field(default_factory=list)
    seed: int | None = None
    stepped_schedules: set[int] = field(default_factory=set)
    loaded: list[Any] = field(default_factory=list)
    compiled: list[Any] = field(default_factory=list)
    _losses: Losses = field(default_factory=Losses)
    _calls: dict[int, tuple[Any, Any, Any]] = field(default_factory=dict)
    _loader: Any = None
    _batch: Any = None
    _clip: tuple[str, Any] | None = None
    _hooks: list[Any] = field(default_factory=list)

    def __enter__(self) -> Watch:
        self._hooks = [
            register_optimizer_step_pre_hook(self._stepped),
            torch.nn.modules.module.register_module_forward_hook(self._ran),
        ]
        self._losses.__enter__()
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        self._losses.__exit__(None, None, None)
        for hook in self._hooks:
            hook.remove()

    def _seen(self, frame: FrameType, event: str, value: Any) -> None:
        if event == "call":
            self.makings.called(frame)
            notice = _CALLS.get(frame.f_code.co_name)
            if notice is not None:
                notice(self, frame)
        elif event == "return":
            self.makings.returned(frame, value)
            if frame.f_code.co_name == "__next__" and frame.f_globals.get("__name__") == DataLoader.__module__:
                self._fetched(frame, value)

    def _fetched(self, frame: FrameType, batch: Any) -> None:
        """A DataLoader has given a batch; None: an epoch of it is over."""
        if batch is None or self.step is not None:
            return
        made = self.makings.constructor(frame.f_locals.get("self"))
        self._loader, self._batch = (made.arguments.get("loader") if made is not None else None), batch
        self._calls.clear()
        self._losses.forget()

    def _ran(self, module: Any, inputs: Any, outputs: Any) -> None:
        """A module has been called."""
        self._calls[id(module)] = module, inputs, outputs

    def _stepped(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        """An optimizer is about to step."""
        if self.step is None:
            here, script = sys._getframe(), self.makings.script
            loaders = list(self.makings.things(DataLoader))
            names = names_around(here, script, [*loaders, *(each.dataset for each in loaders)])
            self.step = Step(
                optimizer, self._loader, self._batch, self._losses.backward, self._losses.passes, dict(self._calls),
                self._losses, self._clip, epochs_around(here, script), names,
            )  # fmt: skip
        elif self.step.optimizer is optimizer:
            raise Enough
        else:
            self.others.append(optimizer)


def _seeded(watch: Watch, frame: FrameType) -> None:
    if watch.seed is None and frame.f_globals.get("__name__") == "torch.random":
        watch.seed = int(frame.f_locals.get("seed", 0))


def _schedule_stepped(watch: Watch, frame: FrameType) -> None:
    own = frame.f_locals.get("self")
    inside = frame.f_back is not None and str(frame.f_back.f_globals.get("__name__", "")).startswith("torch.optim.lr_")
    if isinstance(own, LRScheduler) and watch.step is not None and not inside:
        watch.stepped_schedules.add(id(own))


def _weights_read(watch: Watch, frame: FrameType) -> None:
    own = frame.f_locals.get("self")
    if isinstance(own, torch.nn.Module):
        watch.loaded.append(own)


def _clipped(watch: Watch, frame: FrameType) -> None:
    if watch.step is None and frame.f_globals.get("__name__") == "torch.nn.utils.clip_grad":
        bound = frame.f_locals.get("max_norm", frame.f_locals.get("clip_value"))
        if bound is not None:
            watch._clip = frame.f_code.co_name, bound


_CALLS: dict[str, Callable[[Watch, FrameType], None]] = {
    "manual_seed": _seeded,
    "step": _schedule_stepped,
    "load_state_dict": _weights_read,
    "clip_grad_norm_": _clipped,
    "clip_grad_value_": _clipped,
}
