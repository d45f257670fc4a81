"""A trained network of a run: built as the run built it, with the weights of a checkpoint."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fleet.models.errors import ModelsError
from fleet.models.members import Member
from fleet.spec import EnsembleSpec, Job, SpecTask
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
        ModelsError: it has no checkpoint, or its code builds another network now.
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
        ModelsError: the model is another one, or its weights are no numbers; `what` says whose checkpoint it is.
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
        raise ModelsError(f"{text}; train it with a lower learning rate, or name other networks")
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
    """Raise ModelsError unless both have the same names, shapes and dtypes."""
    for name in dict.fromkeys([*own, *theirs]):
        here, there = own.get(name), theirs.get(name)
        if here is None or there is None or (here.shape, here.dtype) != (there.shape, there.dtype):
            sides = (_described(here), _described(there))
            text = f"{what}: {kind} {name} is {sides[0]} in the network as its code builds it now, {sides[1]} there"
            raise ModelsError(f"{text}; use the code with which the run was trained")


def _described(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{tuple(tensor.shape)} of {tensor.dtype}".replace("torch.", "")


NAME = "soup"
_MOST_NAMES = 8


@dataclass(frozen=True)
class Soup:
    """A network with mean weights.

    Attributes:
        network: in eval mode.
        members: names of the networks that went into it.
        averaged_buffers: names of buffers that are means, too, such as running statistics of BatchNorm. Those that a
            pass over training samples would measure may differ.
    """

    network: TrainedNetwork
    members: tuple[str, ...]
    averaged_buffers: tuple[str, ...]


@torch.no_grad()
def soup_of(networks: Sequence[TrainedNetwork]) -> Soup:
    """Return the soup of networks of one architecture, see `check_one_architecture`.

    Parameters and buffers of floats are means, added in float64 in the order of the networks; other buffers, such as
    counts, are the first one's.
    """
    model = copy.deepcopy(networks[0].model)
    for name, parameter in model.named_parameters():
        parameter.copy_(_mean([network.model.get_parameter(name) for network in networks]))
    averaged = []
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point() and buffer.numel():
            buffer.copy_(_mean([network.model.get_buffer(name) for network in networks]))
            averaged.append(name)
    names = tuple(network.name for network in networks)
    return Soup(replace(networks[0], name=NAME, model=model), names, tuple(averaged))


def check_one_architecture(networks: Sequence[TrainedNetwork], jobs: Sequence[Job]) -> None:
    """Raise ModelsError unless there are two networks or more, and weights of all mean the same.

    That is so if their jobs name the same model with the same arguments, the same data and the same loss, and their
    tensors have the same names, shapes and dtypes.
    """
    if len(networks) < 2:
        raise ModelsError(
            f"--soup needs two networks or more, and {networks[0].name} is one alone; name more --members"
        )
    groups: dict[str, list[str]] = {}
    for network, job in zip(networks, jobs):
        groups.setdefault(_architecture(network.model, job), []).append(network.name)
    if len(groups) == 1:
        return
    told = "; ".join(_listed(names) for names in groups.values())
    text = f"--soup averages weights, and these networks are of {len(groups)} architectures, data or losses ({told})"
    largest = max(groups.values(), key=len)
    if len(largest) > 1:
        raise ModelsError(f"{text}; name those of one: --members {','.join(largest)}")
    raise ModelsError(f"{text}, no two alike; leave --soup out, or train networks that differ in seed or optimizer")


def _architecture(model: nn.Module, job: Job) -> str:
    """What two networks have in common whose weights can be averaged."""
    parts = job.model_dump(mode="json", include={"model", "task", "data", "loss"})
    tensors = [*model.named_parameters(), *model.named_buffers()]
    shapes = [(name, tuple(tensor.shape), str(tensor.dtype)) for name, tensor in tensors]
    return json.dumps([parts, shapes], sort_keys=True)


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    """On the CPU: networks may lie on different devices, and some devices have no float64."""
    wide = torch.complex128 if tensors[0].is_complex() else torch.float64
    total = tensors[0].cpu().to(wide)
    for tensor in tensors[1:]:
        total = total + tensor.cpu().to(wide)
    return total / len(tensors)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMES]) + (" ..." if len(names) > _MOST_NAMES else "")
