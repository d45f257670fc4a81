"""Watches what virtual workers share: nothing of it may change in a worker's turn.

Under DDP each worker is a process with a model of its own. Here workers take turns on one model, and what a checkpoint
holds is its parameters, each worker's buffers, random states and plain attributes, and the optimizer. What else a
forward pass changes would reach the next worker, would advance N times a step, and would be lost with a move: silently,
other bits. Lists, dicts and tensors that a task or a loss object keeps are mostly notes that no step reads, so a change
of these is told, and no error.
"""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, contextmanager, nullcontext
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from trainers.repeatable.determinism import ConsistencyWarning
from trainers.repeatable.plain_attributes import (
    TASK,
    TORCHS_OWN,
    Attributes,
    PlainAttributes,
    joined,
    object_holders,
    scratch_in,
    split,
)
from trainers.repeatable.process_settings import ProcessSettings

CLOSE_LOOKS = 4
"""Turns whose changes of attributes and of parameters' values are looked for; changes in place are, in every turn."""


_NOTHING = nullcontext()


_PLAIN = (bool, int, float, complex, str, bytes)


_DEPTH = 4


_PART = 1 << 20


_VERSION = attrgetter("_version")


_Marks = tuple[list[object], ...]
"""Of some tensors: where each lies, its version, and, closely looked at, its bits."""


class HasAttributes(Protocol):
    """A virtual worker."""

    attributes: Attributes


class UntoldState(RuntimeError):
    """A model, or its task, keeps state where virtual workers and checkpoints do not see it."""


class SharedState:
    """Looks at a model before and after each turn.

    Args:
        job: its name.
        model: what workers take turns on.
        scratch: names of attributes that may change, as nothing reads them in a later turn (the task's `scratch`),
            beside those that modules name in their own.
        own: gives a digest of the task's own state (see `trainers.task.task_options`).
        code: what the model is trained with (see `trainers.repeatable.plain_attributes`).

    Raises:
        UntoldState: the model has a module that cannot be trained so (`unfit_modules`).
    """

    def __init__(
        self,
        job: str,
        model: nn.Module,
        scratch: tuple[str, ...] = (),
        own: Callable[[], str] = str,
        code: Mapping[str, object] | None = None,
    ) -> None:
        self._job, self._model, self._own = job, model, own
        self._scratch = frozenset(scratch) | scratch_in(model)
        self._plain = PlainAttributes(model, self._scratch, code)
        self._uncarried = Uncarried(job, model, code or {}, self._scratch)
        self._parameters, self._buffers = dict(model.named_parameters()), dict(model.named_buffers())
        self._marks: _Marks = ()  # of the parameters, as the last turn left them
        self._own_attributes: Attributes = {}  # of the worker whose turn it is
        self._turns, self._steps = 0, Counter[str]()
        for unfit in unfit_modules(model):
            raise UntoldState(f"job {job}: {unfit.rule}. {unfit.mend}")

    def turn(self, attributes: Attributes, is_first: bool) -> AbstractContextManager[None]:
        """A worker's forward and backward pass, with its own plain attributes, which it then has anew.

        Args:
            is_first: whether the parameters may have changed since the last turn, as this is the first of an update.

        Raises:
            UntoldState: it changed a parameter, another attribute of a module or the task's own state; the text names
                it and the mend.
        """
        self._plain.give(attributes)
        if self._turns < CLOSE_LOOKS:
            return self._close_turn(attributes)
        if is_first:
            self._marks = _marks(self._parameters, False)
        self._own_attributes = attributes
        return self

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End a turn that is not closely looked at."""
        if kind is None:
            before, self._marks = self._marks, _marks(self._parameters, False)
            if before != self._marks:
                self._hold_parameters(before, self._marks)
            self._plain.take(self._own_attributes, False)

    @contextmanager
    def _close_turn(self, attributes: Attributes) -> Iterator[None]:
        before, marks = self._attributes(), _marks(self._parameters, True)
        own, uncarried, settings = self._own(), self._uncarried.now(), ProcessSettings.now()
        yield
        self._turns += 1
        self._hold_parameters(marks, _marks(self._parameters, True))
        self._hold_attributes(before, self._attributes())
        self._hold_own(own, self._own())
        self._uncarried.compare_turn(uncarried)
        self._hold_settings(settings)
        self._plain.take(attributes, True)
        self._marks = _marks(self._parameters, False)

    @contextmanager
    def evaluation(self, attributes: Attributes) -> Iterator[None]:
        """Let the model have these plain attributes for a batch, which leaves no trace in them."""
        with self._plain.for_a_while(attributes):
            yield

    def leave(self) -> None:
        """Give back what other networks of this process share; the next turn has it anew."""
        self._plain.leave()

    def looks_closely(self, where: str) -> bool:
        """Whether the next `between_turns` of this name reads what lies on a device."""
        return self._steps[where] < CLOSE_LOOKS

    def between_turns(self, task: object, where: str, workers: Sequence[HasAttributes]) -> AbstractContextManager[None]:
        """What the task does once a step, in its method `where`, if it has that; see `_watched`."""
        self._steps[where] += 1
        if not hasattr(task, where):
            return _NOTHING
        return self._watched(where, workers, self._steps[where] <= CLOSE_LOOKS)

    @contextmanager
    def _watched(self, where: str, workers: Sequence[HasAttributes], close: bool) -> Iterator[None]:
        """What the task does once a step, in its method `where`; plain attributes that it changes, change for all.

        Raises:
            UntoldState: it changed a buffer, which the next turn fills with its worker's.
        """
        marks, before = _marks(self._buffers, False), self._plain.looked_at(close)
        uncarried = self._uncarried.now() if close else {}
        yield
        self._uncarried.compare_between(uncarried, where)
        self._spread(where, before, self._plain.looked_at(close), [worker.attributes for worker in workers])
        if (name := _changed(self._buffers, marks, _marks(self._buffers, False))) is not None:
            raise UntoldState(
                f"job {self._job}: {where} changes buffer {name}. Each virtual worker has buffers of its own, which "
                "its next turn restores; change it in `forward`, or make it a parameter that requires no gradient: "
                "those are shared"
            )

    def _spread(self, where: str, before: Attributes, after: Attributes, workers: Sequence[Attributes]) -> None:
        """Give what changed between turns to all workers, as all processes of DDP would do it."""
        for name in [name for name, value in after.items() if name not in before or before[name] != value]:
            if any(own.get(name) != workers[0].get(name) for own in workers):
                raise UntoldState(
                    f"job {self._job}: {where} changes attribute {name}, of which each virtual worker has its own, as "
                    "`forward` changes it, too; use two attributes"
                )
            for own in workers:
                self._plain.keep(name, after[name], own)

    def _hold_parameters(self, before: _Marks, after: _Marks) -> None:
        if (name := _changed(self._parameters, before, after)) is not None:
            raise UntoldState(
                f"job {self._job}: the forward or backward pass changes parameter {name}. All virtual workers share "
                "it, so it would change once a worker and not once a step; change it in the task's "
                "`after_step(model)`, which comes once, after the optimizer's update"
            )

    def _hold_attributes(self, before: Mapping[str, object], after: Mapping[str, object]) -> None:
        for name in sorted(before.keys() - self._plain.now().keys()):
            value = before[name]
            if value is not None and after.get(name, value) != value:
                raise UntoldState(
                    f"job {self._job}: the forward pass changes attribute {name}. The next virtual worker would find "
                    "it, and a move or a restart would lose it; keep it in a buffer (`register_buffer`), or, if "
                    f"nothing reads it in a later step, name it in the task, or the module's class: "
                    f"scratch = ({name.rpartition('.')[2]!r},)"
                )

    def _hold_own(self, before: str, after: str) -> None:
        if before != after:
            raise UntoldState(
                f"job {self._job}: the forward pass changes the task's own state, which `state()` gives. All virtual "
                "workers of a trainer share it, and those of other trainers do not; change it in the task's "
                "`after_step(model)`, which comes once, and alike on all trainers"
            )

    def _hold_settings(self, before: ProcessSettings) -> None:
        if changed := before.changed():
            before.put_back()
            raise UntoldState(
                f"job {self._job}: the forward or backward pass sets {', '.join(changed)} for the whole process, where "
                "other networks train, too; take that away, or set it inside the pass alone, as torch.no_grad() does. "
                "What a run may choose of it is the spec's: determinism, resources.threads"
            )

    def _attributes(self) -> dict[str, object]:
        """Each module's own attributes by full name, as values that can be compared later."""
        return {
            f"{path}.{name}".lstrip("."): seen(value, _DEPTH)
            for path, module in self._model.named_modules()
            for name, value in vars(module).items()
            if name not in TORCHS_OWN and name not in self._scratch and name not in _made_anew(module)
        }


def _made_anew(module: nn.Module) -> set[str]:
    """The weights that hooks of torch's work out before each forward pass: those of its older norms, and of pruning."""
    norms = (WeightNorm, SpectralNorm)
    hooks = module._forward_pre_hooks.values()
    names = {hook.name for hook in hooks if isinstance(hook, norms)}
    return names | {hook._tensor_name for hook in hooks if isinstance(hook, BasePruningMethod)}


def seen(value: Any, depth: int = 32) -> object:
    """Return a value that stays equal as long as `value` does; None where that is None, or cannot be looked into."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Tensor):
        return tuple(value.shape), str(value.dtype), _digest(value)
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype), hashlib.blake2b(np.ascontiguousarray(value).tobytes()).hexdigest()
    if depth and isinstance(value, Mapping):
        return tuple((str(key), seen(item, depth - 1)) for key, item in value.items())
    if depth and isinstance(value, list | tuple | set | frozenset):
        return tuple(seen(item, depth - 1) for item in value)
    return None


def _marks(tensors: Mapping[str, Tensor], close: bool) -> _Marks:
    """What tells whether a tensor is another than before. Each turn asks twice, so torch does all of it."""
    held = tensors.values()
    if not close:
        return [*map(Tensor.data_ptr, held)], [*map(_VERSION, held)]
    bits = [None if tensor.requires_grad else _digest(tensor) for tensor in held]
    return [*map(Tensor.data_ptr, held)], [*map(_VERSION, held)], bits


def _changed(tensors: Mapping[str, Tensor], before: _Marks, after: _Marks) -> str | None:
    """The name of the first tensor whose marks differ; None: all are as they were."""
    if before == after:
        return None
    for column, now in zip(before, after):
        for name, old, new in zip(tensors, column, now):
            if old != new:
                return name
    return None


@torch.no_grad()
def _digest(tensor: Tensor) -> object:
    """Sums over parts of a tensor's bytes, each weighed by its place, so that a change is hardly ever unseen."""
    if tensor.is_sparse or tensor.is_quantized or tensor.numel() == 0:
        return None
    octets = tensor.detach().contiguous().view(-1).view(torch.uint8)
    places = torch.arange(1, min(octets.numel(), _PART) + 1, device=octets.device)
    return tuple(int((part * places[: part.numel()]).sum()) for part in octets.split(_PART))


class UnfitModule(NamedTuple):
    """A module that cannot be trained.

    Attributes:
        rule: which, and why. mend: what to have in its place.
    """

    rule: str
    mend: str


def unfit_modules(model: nn.Module) -> Iterator[UnfitModule]:
    """Yield the modules of a model that cannot be trained so."""
    for name, module in model.named_modules():
        what = f"module {name}" if name else "the model"
        if isinstance(module, nn.SyncBatchNorm):
            yield UnfitModule(
                f"{what} is a SyncBatchNorm, whose statistics need all workers in the forward pass at once; virtual "
                "workers take turns",
                "Use BatchNorm, which DDP keeps by process, or GroupNorm",
            )
        own = (*module.parameters(recurse=False), *module.buffers(recurse=False))
        if any(map(is_lazy, own)):
            yield UnfitModule(
                f"{what} is a {type(module).__name__}, whose sizes nobody knows before the first batch; DDP refuses "
                "it, too",
                "Give the sizes, or let the model's constructor pass zeros through it",
            )


Outlines = dict[str, object]


class Uncarried:
    """Looks at what a job's own objects keep.

    Args:
        job: its name.
        model: what it trains; its modules are looked at by others.
        code: what it is trained with (see `trainers.repeatable.plain_attributes`).
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
