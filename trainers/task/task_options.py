"""What a task may ask beyond the required: how a step is done, and what the task itself keeps; checked beforehand.

The options of a step are what users of DDP write into their loops, and they keep DDP's bits:

* accumulation: the parts of a batch run under `no_sync`, but for the last one. Gradients add up unscaled in each
  worker; scaling by 1/N and the sum over workers come once, after the last part. Buffers are taken from virtual worker
  0 before the first part alone.
* mixed precision: the loss is computed under `torch.autocast`, backward runs outside. Weights, gradients, buckets and
  sums stay float32.
* clipping: after the sum, before the update, of the gradients that all workers share.
* compilation: of the model's forward and backward passes (see `trainers.step.compute`).

A task's own state (averages of weights, queues, counters) is given by `state()` and taken back by `load_state(state)`.
It changes once a step, in `before_step` or `after_step`, alike on all trainers; it is part of checkpoints, and goes
with the job when that moves.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from trainers.repeatable.shared_state import UntoldState, seen
from trainers.state.tree import flatten
from trainers.task.loss import UnfitTask
from trainers.task.parts import check_parted
from trainers.task.task import Batch, Task, move, name_of, samples_in

_PRECISIONS = {"bfloat16": torch.bfloat16}
KERNELS, GRAPHS = "kernels", "graphs"
NOTHING = nullcontext()
"""A context that does nothing, made once: a small network's step enters several."""


@dataclass(frozen=True)
class StepOptions:
    """The optional attributes of a task that change a step.

    accumulate: parts in which a virtual worker's batch is worked on, one after the other.
    autocast: "bfloat16", or None for the precision of the model.
    clip_norm: the largest 2-norm of all gradients together; clip_value: the largest magnitude of an element.
    compile: whether torch.compile makes the model's kernels, True or "kernels"; with "graphs" a GPU also replays them
        as graphs.
    """

    accumulate: int = 1
    autocast: str | None = None
    clip_norm: float | None = None
    clip_value: float | None = None
    compile: bool | str = False

    def __post_init__(self) -> None:
        if isinstance(self.accumulate, bool) or not isinstance(self.accumulate, int) or self.accumulate < 1:
            raise ValueError(
                f"accumulate is {self.accumulate!r}, it must be a whole number from 1 on: parts of a batch"
            )
        if self.autocast == "float16":
            raise ValueError("autocast is 'float16', which needs its losses scaled; use 'bfloat16', which does not")
        if self.autocast is not None and self.autocast not in _PRECISIONS:
            raise ValueError(f"autocast is {self.autocast!r}; choose {' or '.join(map(repr, _PRECISIONS))}, or None")
        if self.compile not in (True, False, KERNELS, GRAPHS):
            raise ValueError(f"compile is {self.compile!r}; choose True, {KERNELS!r} or {GRAPHS!r}, or leave it out")
        for name in ("clip_norm", "clip_value"):
            limit = getattr(self, name)
            if limit is not None and not (limit > 0 and math.isfinite(limit)):
                raise ValueError(f"{name} is {limit!r}, it must be a number above 0; leave it out not to clip")
        if self.clip_norm is not None and self.clip_value is not None:
            raise ValueError(
                f"clip_norm is {self.clip_norm} and clip_value {self.clip_value}: give one of them; "
                "`before_step(model)` may clip in any other way"
            )

    @classmethod
    def of(cls, task: object) -> StepOptions:
        """Return a task's options. ValueError names the attribute that is out of range."""
        names = ("accumulate", "autocast", "clip_norm", "clip_value", "compile")
        given = {name: getattr(task, name, None) for name in names}
        if callable(given["compile"]):  # a method of that name, as modules have one, asks for nothing
            given["compile"] = None
        return cls(**{name: value for name, value in given.items() if value is not None})

    def precision(self, device: torch.device) -> AbstractContextManager[Any]:
        """Return the context for forward passes on `device`."""
        if self.autocast is None:
            return NOTHING
        return torch.autocast(device.type, dtype=_PRECISIONS[self.autocast])

    def parts(self, batch: Batch) -> list[tuple[Batch, float]]:
        """Return the parts of a batch, each with the divisor of its mean loss.

        Parts differ by one sample at most. A loss divided by (samples of the batch / samples of the part) makes
        gradients as for the mean over the batch; for equal parts it is the division by `accumulate` that DDP users
        write. A batch of fewer samples than parts has a part for each sample.
        """
        if self.accumulate == 1:
            return [(batch, 1.0)]
        count = samples_in(batch)
        pieces = split(batch, min(self.accumulate, count), count)
        return [(piece, count / samples_in(piece)) for piece in pieces]

    def cut(self, parts: int) -> StepOptions:
        """Return the options of a step in which each part of a batch is cut into so many."""
        return self if parts == 1 else replace(self, accumulate=self.accumulate * parts)

    def before_update(self, task: object, model: nn.Module) -> None:
        """Clip the summed gradients, then let the task's `before_step(model)` have them."""
        if self.clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), self.clip_norm)
        if self.clip_value is not None:
            nn.utils.clip_grad_value_(model.parameters(), self.clip_value)
        if hasattr(task, "before_step"):
            task.before_step(model)


def split(value: Any, parts: int, samples: int) -> list[Any]:
    """Return `parts` consecutive parts of a batch; every tensor in it has `samples` as its first axis.

    TypeError for a leaf that is no tensor and cannot be cut.
    """
    if isinstance(value, Tensor):
        if value.dim() == 0 or len(value) != samples:
            raise TypeError(
                f"a tensor of shape {tuple(value.shape)} in a batch of {samples} samples cannot be cut into {parts} "
                "parts: its first axis must count samples; leave `accumulate` out or mend the data set's collation"
            )
        return list(value.tensor_split(parts))
    if isinstance(value, Mapping):
        columns = {key: split(item, parts, samples) for key, item in value.items()}
        return [{key: column[i] for key, column in columns.items()} for i in range(parts)]
    if isinstance(value, (tuple, list)):
        items = [split(item, parts, samples) for item in value]
        make = getattr(value, "_make", type(value))  # of a named tuple
        return [make(item[i] for item in items) for i in range(parts)]
    raise TypeError(f"a {type(value).__name__} in a batch cannot be cut into {parts} parts; leave `accumulate` out")


class TaskState:
    """The own state of a task; is_kept: whether it has one."""

    def __init__(self, task: Task) -> None:
        """UnfitTask if the task has one of `state` and `load_state` without the other."""
        self._job, self._was_held = name_of(task), False
        self._state, self._load = getattr(task, "state", None), getattr(task, "load_state", None)
        self.is_kept = callable(self._state)
        if self.is_kept != callable(self._load):
            has, lacks = ("state()", "load_state(state)") if self.is_kept else ("load_state(state)", "state()")
            raise UnfitTask(f"the task has {has} and no {lacks}: a checkpoint needs both; add `def {lacks}`")

    def now(self) -> Any:
        """Return what `state()` gives; None where there is no such method.

        UntoldState if that is None, or, looked for at the first time, nothing that a checkpoint can hold.
        """
        if self._state is None:
            return None
        state = self._state()
        if state is None:
            raise UntoldState(f"job {self._job}: the task's state() gives None; give {{}} if there is nothing to keep")
        if not self._was_held:
            self._hold(state)
        return state

    def load_state(self, saved: Any, device: torch.device) -> None:
        """Give a checkpoint's state to the task's `load_state`, with its tensors on the job's device."""
        if self._load is not None:
            self._load(move(saved, device))

    def digest(self) -> str:
        """Return a text that is the same on all trainers as long as their states are."""
        return hashlib.blake2b(repr(seen(self.now())).encode(), digest_size=16).hexdigest()

    def hold_equal(self, digests: list[str]) -> None:
        """Raise UntoldState unless the digests of all trainers are the same."""
        if len(set(digests)) > 1:
            other = next(index for index, digest in enumerate(digests) if digest != digests[0])
            raise UntoldState(
                f"job {self._job}: the task's own state, which `state()` gives, is not the same on all trainers: the "
                f"first and number {other + 1} differ. Change it in `after_step(model)` alone, by what all trainers "
                "share: parameters and earlier states, no batch, no random number"
            )

    def _hold(self, state: Any) -> None:
        try:
            flatten(state)
        except (TypeError, RuntimeError) as error:  # torch raises the latter for tensors that are not dense
            raise UntoldState(
                f"job {self._job}: state() of the task: {error}; keep plain numbers, lists or dense tensors instead, "
                "and make of them what you need in load_state(state)"
            ) from error
        self._was_held = True


def needed_by(task: object) -> tuple[str, ...]:
    """Return the names of the methods that a task must have beside `model` and `dataset`."""
    return ("optimizers", "step") if hasattr(task, "step") or hasattr(task, "optimizers") else ("optimizer",)


_CALLED_WITH = {
    "model": (),
    "dataset": ("train",),
    "optimizer": ("model",),
    "scheduler": ("optimizer",),
    "loss": ("model", "batch"),
    "metrics": ("model", "batch"),
    "optimizers": ("model",),
    "schedulers": ("optimizers",),
    "step": ("model", "batch"),
    "before_step": ("model",),
    "after_step": ("model",),
    "collate": ("samples",),
    "state": (),
    "load_state": ("state",),
}
"""What each method of a task is given."""


def check_task(task: Task) -> None:
    """Raise ValueError, which names what is wrong and the mend, if a task cannot be trained as it is written."""
    wrong = [told for name, given in _CALLED_WITH.items() if (told := _miscalled(task, name, given))]
    if wrong:
        raise ValueError("; ".join(wrong))
    StepOptions.of(task)
    TaskState(task)
    check_parted(task)


def _miscalled(task: object, name: str, given: tuple[str, ...]) -> str:
    """Say that a method cannot take what it is given; "" if it can, or if there is none."""
    method = getattr(task, name, None)
    if not callable(method):
        return ""
    try:
        taken = signature(method)
    except (TypeError, ValueError):  # some builtins tell none
        return ""
    try:
        taken.bind(*given)
    except TypeError:
        wanted = ", ".join(("self", *given))
        return f"{name} is called as {name}({', '.join(given)}), and takes {taken}; write `def {name}({wanted})`"
    return ""
