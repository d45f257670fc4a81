"""Several optimizers of one model as one, where some weights are updated by one rule and some by another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import optim


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
