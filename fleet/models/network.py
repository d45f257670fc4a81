"""A trained network of a run: built as the run built it, with the weights of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fleet.models.errors import HarvestError
from fleet.models.members import Member
from fleet.spec import EnsembleSpec, SpecTask
from preprocess.files.modules import at_home
from trainers import Checkpoint, read
from trainers.repeatable.plain_attributes import Attributes, PlainAttributes, is_shared
from trainers.repeatable.random_state import RandomState, seed_everything
from trainers.step.losses import FiniteWeights

_CPU = torch.device("cpu")
_FIRST = 0
"""The virtual worker whose buffers evaluation uses."""


@dataclass(frozen=True)
class TrainedNetwork:
    """A trained network.

    Attributes:
        name: the job's.
        model: in eval mode, on the CPU; its parameters ask for no gradients.
        prepare: a batch of inputs as the run's data gives it -> as the model takes it: normalised as in the run.
        task: gives loss and metrics of a batch as it arrives.
        checkpoint: whose weights the model has.
        path: that file lies there.
    """

    name: str
    model: nn.Module
    prepare: Callable[[Any], Any]
    task: SpecTask
    checkpoint: Checkpoint
    path: Path


def read_network(member: Member, spec: EnsembleSpec, which: str = "best") -> TrainedNetwork:
    """Build a network and give it the weights of its best checkpoint that is kept, or of the last one.

    What its code draws as it is built it draws with the job's seed; the caller's generators stay as they are.

    Args:
        which: `best` (where none is kept, the last) or `last`.

    Raises:
        HarvestError: it has no checkpoint, or its code builds another network now.
        CheckpointError: the checkpoint is damaged.
        ReferenceProblem: a module of the spec is not there any more.
    """
    path = member.checkpoint(which)
    saved = read(path)
    with at_home(spec.folder):
        task = built_task(member, spec)
        model = _built(task)
    load_weights(model, saved, f"job {member.name} of {path}")
    return TrainedNetwork(member.name, model, task.prepare, task, saved, path)


def built_task(member: Member, spec: EnsembleSpec) -> SpecTask:
    """Return the task of a network's job, whose modules can be imported now."""
    job = member.job
    return SpecTask(job, spec.data[job.data] if job.data is not None else None)


def _built(task: SpecTask) -> nn.Module:
    before = RandomState.now(_CPU)
    try:
        seed_everything(task.seed)
        return task.model()
    finally:
        before.set(_CPU)


@torch.no_grad()
def load_weights(model: nn.Module, saved: Checkpoint, what: str) -> None:
    """Give a model a checkpoint's parameters, and buffers and attributes as evaluation uses them; into eval mode.

    Raises:
        HarvestError: the model is another one, or its weights are no numbers; `what` says whose checkpoint it is.
    """
    first, finite = saved.workers[_FIRST], FiniteWeights(what, model)
    for kind, own, theirs in (
        ("parameter", dict(model.named_parameters()), saved.parameters),
        ("buffer", dict(model.named_buffers()), first["buffers"]),
    ):
        _check_alike(what, kind, own, theirs)
        for name, tensor in own.items():
            tensor.copy_(theirs[name])
    if (unfit := finite.first_unfit(model)) is not None:
        text = f"{what}: {unfit} holds NaN or infinite values, as the network had diverged"
        raise HarvestError(f"{text}; train it with a lower learning rate, or name other networks")
    attributes, own = PlainAttributes(model, frozenset()), first.get("attributes", {})
    attributes.give({name: value for name, value in own.items() if not is_shared(name)})
    if shared := {name: value for name, value in own.items() if is_shared(name)}:
        as_trained = _AsTrained(attributes, shared)
        model.register_forward_pre_hook(as_trained.enter)
        model.register_forward_hook(as_trained.leave, always_call=True)
    model.eval().requires_grad_(False)


class _AsTrained:
    """Lets what networks of a process share be, while one predicts, as it was when its checkpoint was written."""

    def __init__(self, attributes: PlainAttributes, own: Attributes) -> None:
        self._attributes, self._own, self._inside = attributes, own, ExitStack()

    def enter(self, *_: object) -> None:
        self._inside.enter_context(self._attributes.for_a_while(self._own))

    def leave(self, *_: object) -> None:
        self._inside.close()

    def __deepcopy__(self, _: object) -> _AsTrained:
        return self  # Python modules, which it holds, have no copies


def _check_alike(what: str, kind: str, own: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> None:
    """Raise HarvestError unless both have the same names, shapes and dtypes."""
    for name in dict.fromkeys([*own, *theirs]):
        here, there = own.get(name), theirs.get(name)
        if here is None or there is None or (here.shape, here.dtype) != (there.shape, there.dtype):
            sides = (_described(here), _described(there))
            text = f"{what}: {kind} {name} is {sides[0]} in the network as its code builds it now, {sides[1]} there"
            raise HarvestError(f"{text}; use the code with which the run was trained")


def _described(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{tuple(tensor.shape)} of {tensor.dtype}".replace("torch.", "")
