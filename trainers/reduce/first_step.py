"""What the first step tells for all others: which parameters get gradients, and in which order.

They are the same on all virtual workers, as DDP asks by default.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from torch import nn

from trainers.messages.group import Group
from trainers.reduce.buckets import Layout
from trainers.repeatable.determinism import ConsistencyWarning


class UnevenGradients(RuntimeError):
    """Some virtual workers gave a parameter a gradient and others did not."""


def agreed_layout(
    job: str,
    group: Group,
    names: Sequence[str],
    parameters: Sequence[nn.Parameter],
    uses: Sequence[tuple[bool, ...]],
    order: list[int],
    step: int,
) -> Layout:
    """Return the buckets of the steps after the first; all members learn them from the master.

    Args:
        names, parameters: these are trained.
        uses: which parameters each of this member's virtual workers gave a gradient.
        order: in which order virtual worker 0's gradients became whole; the master's is taken.
        step: its number in the job; at D0 a job has a first step after each restart.

    Raises:
        UnevenGradients: the workers did not use the same parameters.
    """
    gathered = group.gather_trees([list(use) for use in uses])
    if not group.is_master:
        return Layout.from_tree(group.bcast_tree())
    used = uses[0]
    check_uses(job, names, [tuple(use) for member in gathered for use in member], used, 0, step)
    _warn_of_unused(job, names, used)
    layout = Layout.rebuilt(parameters, order, used)
    group.bcast_tree(layout.as_tree())
    return layout


def check_uses(
    job: str, names: Sequence[str], uses: Sequence[tuple[bool, ...]], expected: tuple[bool, ...], first: int, step: int
) -> None:
    """Raise UnevenGradients unless virtual workers `first`, `first` + 1, ... used the parameters as step 0 did.

    Args:
        names: the parameters'.
        uses: which parameters each worker gave a gradient at `step`.
        expected: which of them virtual worker 0 gave one in step 0.
    """
    for worker, use in enumerate(uses, first):
        if use == expected:
            continue
        for name, got, usual in zip(names, use, expected):
            if got != usual:
                raise UnevenGradients(
                    f"job {job}: virtual worker {worker} gave {name} {'a' if got else 'no'} gradient at step {step}, "
                    f"though in step 0 virtual worker 0 gave it {'one' if usual else 'none'}; let every forward pass "
                    "use the same parameters, as DDP asks by default"
                )


def _warn_of_unused(job: str, names: Sequence[str], used: Sequence[bool]) -> None:
    """Warn of parameters that no virtual worker gives a gradient, if others get one."""
    unused = [name for name, has_gradient in zip(names, used) if not has_gradient]
    if unused and any(used):
        warnings.warn(
            f"job {job}: no virtual worker gives {', '.join(unused)} a gradient, so nothing trains it. Stock DDP "
            "refuses such a model: there are no bits to agree with; freeze it with requires_grad_(False), or use it in "
            "the loss",
            ConsistencyWarning,
            stacklevel=2,
        )
