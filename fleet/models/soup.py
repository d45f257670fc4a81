"""Soups (Wortsman et al., ICML'22): one network whose weights are the mean of several networks' weights."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fleet.models.errors import HarvestError
from fleet.models.network import TrainedNetwork
from fleet.spec import Job

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
    """Raise HarvestError unless there are two networks or more, and weights of all mean the same.

    That is so if their jobs name the same model with the same arguments, the same data and the same loss, and their
    tensors have the same names, shapes and dtypes.
    """
    if len(networks) < 2:
        raise HarvestError(
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
        raise HarvestError(f"{text}; name those of one: --members {','.join(largest)}")
    raise HarvestError(f"{text}, no two alike; leave --soup out, or train networks that differ in seed or optimizer")


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
