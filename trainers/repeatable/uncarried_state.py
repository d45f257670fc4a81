"""Lists, dicts and tensors that a task or a loss object keeps: no virtual worker has its own, and no checkpoint any.

Most of them are notes that no step reads, so a change is told, and no error.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sized
from typing import Any

from torch import Tensor, nn

from trainers.repeatable.attribute_holders import TASK, joined, object_holders, split
from trainers.repeatable.determinism import ConsistencyWarning

Outlines = dict[str, object]


class Uncarried:
    """Looks at what a job's own objects keep.

    Args:
        job: its name.
        model: what it trains; its modules are looked at by others.
        code: what it is trained with (see `trainers.repeatable.attribute_holders`).
        scratch: names of attributes that nothing reads in a later step.
    """

    def __init__(self, job: str, model: nn.Module, code: Mapping[str, object], scratch: Collection[str]) -> None:
        self._job, self._scratch = job, scratch
        self._modules = {id(module) for module in model.modules()}
        self._objects = object_holders(code)
        self._has_state = hasattr(code.get("task"), "state")
        self._told: set[str] = set()

    def now(self) -> Outlines:
        """Return what tells, in no time, whether each is as it was: a tensor's place and version, or a length."""
        return {
            joined(path, name): self._outline(value)
            for path, holder in self._objects.items()
            for name, value in _kept(holder).items()
            if name not in self._scratch
        }

    def compare_turn(self, before: Outlines) -> None:
        """Warn, once, of what a forward or backward pass has changed."""
        for name in self._changed(before):
            where, last = split(name)
            unless = f" If none does, scratch = ({last!r},) in the task says so" if name.startswith(TASK) else ""
            self._warn(
                f"the forward or backward pass changes {last} of {where.rstrip(':')}, which all virtual workers of a "
                "trainer share and no checkpoint holds. If a later step reads it, bits are not those of DDP: keep it "
                f"in a buffer of the model, or give it by a task's state() and change it in after_step.{unless}"
            )

    def compare_between(self, before: Outlines, method: str) -> None:
        """Warn, once, of what a task without `state` has changed between turns."""
        for name in () if self._has_state else self._changed(before):
            where, last = split(name)
            self._warn(
                f"{method} changes {last} of {where.rstrip(':')}, which no checkpoint holds: a move or a restart "
                "begins it anew. Give it by the task's state(), and take it back in load_state(state). If nothing "
                f"reads it in a later step, scratch = ({last!r},) in the task says so"
            )

    def _changed(self, before: Outlines) -> list[str]:
        now = self.now()
        changed = [name for name in before if before[name] != now.get(name) and name not in self._told]
        self._told.update(changed)
        return changed

    def _warn(self, text: str) -> None:
        warnings.warn(f"job {self._job}: {text}", ConsistencyWarning, stacklevel=2)

    def _outline(self, value: object) -> object:
        if isinstance(value, Tensor):
            return value.data_ptr(), value._version
        if isinstance(value, nn.Module):
            others = () if id(value) in self._modules else (*value.parameters(), *value.buffers())
            return sum(tensor._version for tensor in others)
        return len(value) if isinstance(value, Sized) and not isinstance(value, str | bytes) else None


def _kept(holder: Any) -> dict[str, Any]:
    return dict(holder.named_buffers(recurse=False)) if isinstance(holder, nn.Module) else vars(holder)
