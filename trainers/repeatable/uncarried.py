"""Lists, dicts and tensors that a task or a loss object keeps: no virtual worker has its own, and no checkpoint any.

Most of them are notes that no step reads, so a change is told, and no error.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sized
from typing import Any

from torch import Tensor, nn

from trainers.repeatable.determinism import ConsistencyWarning
from trainers.repeatable.holders import TASK, joined, object_holders, split

Outlines = dict[str, object]


class Uncarried:
    """Looks at what a job's own objects keep; `scratch` names attributes that nothing reads in a later step."""

    def __init__(self, job: str, code: Mapping[str, object], scratch: Collection[str]) -> None:
        self._job, self._scratch = job, scratch
        self._objects = object_holders(code)
        self._told: set[str] = set()

    def now(self) -> Outlines:
        """Return what tells, in no time, whether each is as it was: a tensor's place and version, or a length."""
        return {
            joined(path, name): _outline(value)
            for path, holder in self._objects.items()
            for name, value in _kept(holder).items()
            if name not in self._scratch
        }

    def compare(self, before: Outlines) -> None:
        """Warn, once, of what is not as before."""
        now = self.now()
        changed = [name for name in before if before[name] != now.get(name) and name not in self._told]
        self._told.update(changed)
        for name in changed:
            where, last = split(name)
            unless = f" If none does, scratch = ({last!r},) in the task says so" if name.startswith(TASK) else ""
            warnings.warn(
                f"job {self._job}: the forward or backward pass changes {last} of {where.rstrip(':')}, which all "
                "virtual workers of a trainer share and no checkpoint holds. If a later step reads it, bits are not "
                "those of DDP: keep it in a buffer of the model, or give it by a task's state() and change it in "
                f"after_step.{unless}",
                ConsistencyWarning,
                stacklevel=2,
            )


def _kept(holder: Any) -> dict[str, Any]:
    return dict(holder.named_buffers(recurse=False)) if isinstance(holder, nn.Module) else vars(holder)


def _outline(value: object) -> object:
    if isinstance(value, Tensor):
        return value.data_ptr(), value._version
    return len(value) if isinstance(value, Sized) and not isinstance(value, str | bytes | nn.Module) else None
