"""Whether the host reads anything of an update."""

from __future__ import annotations

from typing import Any

import torch
import torch_rig
from torch import Tensor, nn, optim

from trainers.step.update import is_unread

UPDATES = 5
OPTIONS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9, "weight_decay": 1e-4, "nesterov": True},
    "Adam": {"amsgrad": True, "weight_decay": 0.01},
    "RMSprop": {"momentum": 0.9, "centered": True},
    "Adadelta": {"weight_decay": 0.01},
}


class Task:
    """With nothing that is called in an update."""


class Looking(Task):
    """Looks at its gradients."""

    def before_step(self, model: nn.Module) -> None: ...


class Own(optim.SGD):
    """Somebody's own."""


def of_optimizer(name: str) -> tuple[bool, int]:
    """Return whether it is said that nothing is read, and how often the host waits in a steady update."""
    torch_rig.schedule("prompt")
    parameters = _parameters()
    optimizer = getattr(optim, name)(parameters, 1e-2, **OPTIONS.get(name, {}))
    for update in range(UPDATES):
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, float(update))
        torch_rig.counts()
        optimizer.step()
    return is_unread(Task(), optimizer), torch_rig.counts().get("syncs", 0)


def of_others() -> dict[str, bool]:
    """Return whether it is said of optimizers of which nothing is known."""
    hooked = optim.SGD(_parameters(), 0.1)
    hooked.register_step_pre_hook(lambda *_: None)
    on_device = torch.tensor(0.1, device="rig")
    return {
        "its own class": is_unread(Task(), Own(_parameters(), 0.1)),
        "a hook": is_unread(Task(), hooked),
        "a learning rate on the device": is_unread(Task(), optim.Adam(_parameters(), on_device, foreach=False)),
        "a kernel for each parameter": is_unread(Task(), optim.SGD(_parameters(), 0.1, foreach=False)),
        "before_step": is_unread(Looking(), optim.SGD(_parameters(), 0.1)),
    }


def _parameters() -> list[Tensor]:
    return list(nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3)).to("rig").parameters())
