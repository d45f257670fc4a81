"""An optimizer of the spec, built over a network's parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn, optim

from fleet.spec.optimizer import Optimizer
from fleet.spec.torch_names import named_optimizer
from trainers.step.joined_optimizer import JoinedOptimizer
from trainers.task.unfit_task import UnfitTask

Makers = Mapping[str, Callable[..., Any]]
"""Name of an optimizer -> what makes it."""


def makers_of(asked: Optimizer) -> dict[str, Callable[..., Any]]:
    """What makes each optimizer that is named. ReferenceProblem if a name leads nowhere."""
    return {name: named_optimizer(name) for name in asked.names}


def built_optimizer(asked: Optimizer, makers: Makers, named: Sequence[tuple[str, nn.Parameter]]) -> optim.Optimizer:
    """Build the optimizer of a network with these parameters; several that are named become one.

    Raises:
        UnfitTask: some parameters are in no group, and there is no optimizer for these.
    """
    if not asked.groups:
        assert asked.name is not None
        made: optim.Optimizer = makers[asked.name]([parameter for _, parameter in named], **asked.arguments)
        return made
    parameters = dict(named)
    *members, rest = asked.members(list(parameters))
    if rest and asked.name is None:
        raise UnfitTask(f"no group of the optimizer has {shown_names(rest)}; {OTHERS}")
    own = [{"params": [parameters[name] for name in rest]}] if rest else []
    others = []
    for group, names in zip(asked.groups, members):
        chosen = {"params": [parameters[name] for name in names], **group.options}
        if names and group.name is None:
            own.append(chosen)
        elif names and group.name is not None:
            others.append(makers[group.name]([chosen], **group.arguments))
    if own:
        assert asked.name is not None
        others.insert(0, makers[asked.name](own, **asked.arguments))
    return others[0] if len(others) == 1 else JoinedOptimizer(others)


OTHERS = 'add a last group {match: ["*"], name: AdamW}, or a name beside the groups, for all others'


def shown_names(names: Sequence[str]) -> str:
    """Some names, and how many there are more."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
