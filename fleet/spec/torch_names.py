"""The names of a spec that torch knows: optimizers, schedules, losses."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch
from torch.nn import functional
from torch.optim import lr_scheduler

from fleet.spec.problem import nearest
from fleet.spec.references import ReferenceProblem, resolve

_NEEDS_CLOSURE = frozenset({"LBFGS"})
_NEEDS_METRIC = frozenset({"ReduceLROnPlateau"})
_LOSS_WORDS = ("loss", "cross_entropy", "kl_div")


def named_optimizer(name: str) -> Callable[..., Any]:
    """The class in ``torch.optim``, or what ``module:Name`` names: called with (parameters, **arguments).

    Raises:
        ReferenceProblem: there is none, or it cannot be stepped as training does.
    """
    if name in _NEEDS_CLOSURE:
        rule = f"{name} evaluates the loss several times a step, which training does not do"
        raise ReferenceProblem(rule, "SGD", "choose another, such as SGD")
    return _looked_up(name, _classes(torch.optim, torch.optim.Optimizer, _NEEDS_CLOSURE), "an optimizer of torch.optim")


def schedule_of(name: str) -> Callable[..., Any]:
    """The class in ``torch.optim.lr_scheduler``, or what ``module:Name`` names: called with (optimizer, **arguments).

    Raises:
        ReferenceProblem: there is none, or it cannot be stepped as training does.
    """
    if name in _NEEDS_METRIC:
        rule = f"{name} wants a metric at each step; schedules are stepped without"
        raise ReferenceProblem(rule, "CosineAnnealingLR", "choose another, such as CosineAnnealingLR")
    return _looked_up(
        name, _classes(lr_scheduler, lr_scheduler.LRScheduler, _NEEDS_METRIC), "a schedule of torch.optim.lr_scheduler"
    )


def built_schedule(
    optimizer: torch.optim.Optimizer,
    schedule: Callable[..., Any] | None,
    arguments: Mapping[str, Any],
    warm_up: int,
    start_factor: float,
) -> Any:
    """The learning-rate schedule of an optimizer, after a warm-up of so many of its units; 0: it begins at once.

    Args:
        schedule: is called with (optimizer, **arguments); None: the rate stays as it is after the warm-up.
    """
    if not warm_up:
        return None if schedule is None else schedule(optimizer, **arguments)
    rising = lr_scheduler.LinearLR(optimizer, start_factor, 1.0, warm_up)
    if schedule is None:
        return rising
    return lr_scheduler.SequentialLR(optimizer, [rising, schedule(optimizer, **arguments)], [warm_up])


def named_loss(name: str) -> Callable[..., Any]:
    """The loss in ``torch.nn.functional``, or what ``module:Name`` names.

    Raises:
        ReferenceProblem: there is none.
    """
    return _looked_up(name, _losses(), "a loss of torch.nn.functional")


def _looked_up(name: str, known: dict[str, Any], what: str) -> Callable[..., Any]:
    if ":" in name:
        found = resolve(name)
        if not callable(found):
            raise ReferenceProblem(
                f"{name} is of type {type(found).__name__} and cannot be called", mend=f"name {what}"
            )
        return found  # type: ignore[no-any-return]
    if name not in known:
        raise ReferenceProblem(f"{name!r} is not {what}", nearest(name, known), "write one of these, or module:Name")
    return known[name]  # type: ignore[no-any-return]


def _classes(module: ModuleType, base: type, without: frozenset[str]) -> dict[str, Any]:
    """The public classes of a module that are made from `base`."""
    found = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    wanted = {name: value for name, value in found.items() if inspect.isclass(value) and issubclass(value, base)}
    return {name: value for name, value in wanted.items() if value is not base and name not in without}


def _losses() -> dict[str, Any]:
    names = [name for name in dir(functional) if any(word in name for word in _LOSS_WORDS) and not name.startswith("_")]
    return {name: getattr(functional, name) for name in names if callable(getattr(functional, name))}
