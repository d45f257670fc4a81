"""What a task itself keeps from step to step, beside its model: averages of weights, queues, counters.

`state()` gives it, `load_state(state)` takes it back. It changes once a step, in `before_step` or `after_step`, alike
on all trainers; it is part of checkpoints, and goes with the job when that moves.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch

from trainers.repeatable.shared_state import UntoldState, seen
from trainers.state.tree import flatten
from trainers.task.task import Task, move, name_of
from trainers.task.unfit_task import UnfitTask


class OwnState:
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

    def take(self, saved: Any, device: torch.device) -> None:
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
