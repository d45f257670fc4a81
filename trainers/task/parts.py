"""Several optimizers in one job: of the parts of a model, each in a phase of its own, or joined as one.

A GAN has several parts. The task's `step(model, batch)` is a generator that yields (part, loss) for each phase. It is
the loop of a script that wraps each part in DistributedDataParallel: while a generator waits at a `yield`, the
gradients of that loss in that part are summed over all virtual workers, and the part's optimizer updates it. Then all
workers go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn, optim

from trainers.messages.group import Group
from trainers.repeatable.process_settings import spare_compiler
from trainers.task import task as tasks
from trainers.task.loss import UnfitTask
from trainers.task.task import Batch, Task

Phase = tuple[str, Tensor]
"""The name of a part, and the loss whose gradients update it."""
Rule = tuple[optim.Optimizer, optim.lr_scheduler.LRScheduler | None]
"""An optimizer, and its schedule."""


class PhaseError(RuntimeError):
    """A task's own step does what no phases of DDP can do."""


def is_parted(task: Task) -> bool:
    """Whether a task has a step of its own, with several optimizers."""
    return callable(getattr(task, "step", None))


def phases_of(task: Task, model: nn.Module, batch: Batch) -> Iterator[Phase]:
    """Return the step that a task has written for a batch."""
    written: Any = task
    phases: Iterator[Phase] = written.step(model, batch)
    return phases


def check_parted(task: Task) -> None:
    """Raise UnfitTask if a task has not all, or too much, for a step of its own."""
    if is_parted(task) != callable(getattr(task, "optimizers", None)):
        has, lacks = ("step(model, batch)", "optimizers(model)")[:: 1 if is_parted(task) else -1]
        raise UnfitTask(f"the task has {has} and no {lacks}: several optimizers need both; add `def {lacks}`")
    if is_parted(task):
        for name, instead in (
            ("accumulate", "yield the sum of the losses"),
            ("scheduler", "write schedulers(optimizers), which gives {part: schedule}"),
        ):
            if getattr(task, name, None) not in (None, 1):
                raise UnfitTask(f"the task has a step of its own, and {name}, which has no meaning there; {instead}")


def rules_of(task: Task, model: nn.Module) -> dict[str, Rule]:
    """Return each part's optimizer and schedule, in order; "" is the whole model, where the task has one optimizer.

    UnfitTask names what does not fit the model.
    """
    check_parted(task)
    spare_compiler()
    if not is_parted(task):
        optimizer = tasks.optimizer_of(task, model)
        return {"": (optimizer, tasks.scheduler_of(task, optimizer))}
    written: Any = task
    optimizers, job = written.optimizers(model), tasks.name_of(task)
    if not isinstance(optimizers, Mapping) or not optimizers:
        raise UnfitTask(f"job {job}: optimizers(model) gives {optimizers!r}; give {{name of a part: its optimizer}}")
    for name, optimizer in optimizers.items():
        _hold_part(job, model, name, tasks.held(task, optimizer, f"optimizers(model), for {name!r},"))
    schedules = written.schedulers(optimizers) if hasattr(task, "schedulers") else {}
    unknown = sorted(set(schedules) - set(optimizers))
    if unknown:
        raise UnfitTask(f"job {job}: schedulers(optimizers) gives one for {unknown[0]!r}; {_choice(optimizers)}")
    return {name: (optimizer, tasks.held_schedule(task, schedules.get(name))) for name, optimizer in optimizers.items()}


def _hold_part(job: str, model: nn.Module, name: Any, optimizer: optim.Optimizer) -> None:
    """Raise UnfitTask unless `name` is a part of the model, and the optimizer has parameters of it alone."""
    parts = dict(model.named_children())
    if name not in parts:
        raise UnfitTask(f"job {job}: optimizers(model) names {name!r}, no part of the model; {_choice(parts)}")
    own = {id(parameter) for parameter in parts[name].parameters()}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in own:
                raise UnfitTask(
                    f"job {job}: the optimizer of part {name} has {names.get(id(parameter), 'a parameter')}, which is "
                    f"none of that part's; give it model.{name}.parameters(), or put what it trains into one part"
                )


def _choice(names: Mapping[str, Any]) -> str:
    return f"choose from {', '.join(names) or 'parts, which it has not'}"


class PhaseRun:
    """One virtual worker's way through the phases of one step.

    rank: the worker's. loss: the sum of its phases' losses so far. samples: of its batch.
    """

    def __init__(self, job: str, rank: int) -> None:
        self._job, self.rank = job, rank
        self._phases: Iterator[Phase] | None = None
        self.loss, self.samples = 0.0, 0

    @property
    def has_begun(self) -> bool:
        """Whether it has its batch."""
        return self._phases is not None

    def begin(self, phases: Iterator[Phase], samples: int) -> None:
        """Take the generator that the task's step gave for a batch of so many samples."""
        self._phases, self.samples = phases, samples

    def advance(self) -> Phase | None:
        """Run the task's step up to its next `yield`; None at its end. PhaseError if that is no (part, loss)."""
        assert self._phases is not None
        if not hasattr(self._phases, "__next__"):
            raise PhaseError(f"job {self._job}: step(model, batch) gives a {type(self._phases).__name__}; {_FORM}")
        said = next(self._phases, None)
        if said is None:
            return None
        if not (isinstance(said, tuple) and len(said) == 2 and isinstance(said[1], Tensor) and said[1].dim() == 0):
            raise PhaseError(f"job {self._job}: step(model, batch) yields {said!r:.80}; {_FORM}")
        return said


_FORM = "let it yield (name of a part, loss) for each phase, the loss a scalar tensor"


class Parts:
    """The parts of a model that a script would wrap in DDP one by one.

    A part that is called gets virtual worker 0's buffers first, as DDP gives them.
    """

    def __init__(self, job: str, model: nn.Module, names: Sequence[str]) -> None:
        self._job, self._names = job, list(names)
        self._first: dict[str, Tensor] | None = None
        self._called: set[str] = set()
        self._of_all = -1
        self._buffers = [name for name, _ in model.named_buffers()]
        for name in names:
            part = model.get_submodule(name)
            if any(True for _ in part.buffers()):
                part.register_forward_pre_hook(partial(self._before, name))

    def agreed(self, phase: Phase | None, rank: int, group: Group | None) -> int:
        """Return the place of a phase's part in the order of `optimizers`; -1 at a step's end.

        phase: virtual worker `rank` is in it. group: to hear the master's phase, given with each member's first worker.
        PhaseError if there is no such part, or virtual worker 0 is at another.
        """
        number = self._number(phase)
        if group is not None:
            self._of_all = group.agree(number)
        if number != self._of_all:
            ours, theirs = (self._names[place] if place >= 0 else "its end" for place in (number, self._of_all))
            raise PhaseError(
                f"job {self._job}: the step of virtual worker {rank} goes on with {ours}, that of virtual worker 0 "
                f"with {theirs}; let the phases depend on nothing but what all workers share, such as the task's "
                "`state()`"
            )
        return number

    def _number(self, phase: Phase | None) -> int:
        if phase is None:
            return -1
        if phase[0] not in self._names:
            raise PhaseError(
                f"job {self._job}: step(model, batch) yields {phase[0]!r}, for which optimizers(model) has no "
                f"optimizer; {_choice(dict.fromkeys(self._names))}"
            )
        return self._names.index(phase[0])

    @contextmanager
    def turn(self, first_workers: Sequence[Tensor]) -> Iterator[None]:
        """A worker's turn in a phase; first_workers: virtual worker 0's buffers at its begin."""
        self._first = dict(zip(self._buffers, first_workers))
        self._called = set()
        try:
            yield
        finally:
            self._first = None

    def _before(self, name: str, part: nn.Module, _: Any) -> None:
        if self._first is None:
            return
        if not torch.is_grad_enabled():
            raise PhaseError(
                f"job {self._job}: part {name}, which has buffers, is called under no_grad, after which DDP would not "
                "give it rank 0's buffers at its next call; call it with gradients, and detach what it gives"
            )
        if name in self._called:
            raise PhaseError(
                f"job {self._job}: part {name}, which has buffers, is called twice in one phase. DDP would give it "
                "rank 0's buffers in between, and fail in backward; call it once (join its inputs by torch.cat), or "
                "use layers without buffers (GroupNorm, InstanceNorm)"
            )
        self._called.add(name)
        for place, buffer in part.named_buffers(name):
            buffer.data.copy_(self._first[place])  # past the version: the graph of an earlier phase may hold it


class JoinedOptimizer(optim.Optimizer):
    """An optimizer that steps others, each with its own parameters.

    Their groups and states are its own, so that a schedule and a checkpoint see one optimizer with all of them.
    """

    def __init__(self, optimizers: Sequence[optim.Optimizer]) -> None:
        """optimizers: at least one; no parameter is in two of them."""
        self._optimizers = list(optimizers)
        groups = [group for each in optimizers for group in each.param_groups]
        super().__init__([{"params": group["params"]} for group in groups], dict(optimizers[0].defaults))
        self.param_groups = groups
        self._share()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Step each, in order."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for each in self._optimizers:
            each.step()
        return loss

    def load_state_dict(self, state_dict: Any) -> None:
        """Take a state that `state_dict` gave."""
        super().load_state_dict(state_dict)
        self._share()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, while this is made: later nobody says to which of them it belongs."""
        if getattr(self, "_is_made", False):
            raise ValueError("a group is added to one of the joined optimizers, not to all")
        super().add_param_group(param_group)

    def _share(self) -> None:
        """Let the others have this one's groups and state."""
        self._is_made = True
        first = 0
        for each in self._optimizers:
            last = first + len(each.param_groups)
            each.param_groups, each.state = self.param_groups[first:last], self.state
            first = last
