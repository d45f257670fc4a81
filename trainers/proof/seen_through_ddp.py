"""A network as a script's loss sees it that trains it under DistributedDataParallel."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainers.task.remembered_calls import called_through


def seen_through_ddp(parallel: DistributedDataParallel) -> nn.Module:
    """Return what stands for `parallel`'s network while one loss is computed.

    To call it is to call DDP. Whatever else a loss takes from it, a method, a layer or a weight, comes from the network
    itself, and DDP's forward is entered before, if it was not yet: DDP gives buffers and awaits gradients from there,
    as it does where Lightning's strategy has `training_step` for its forward. isinstance finds the network's class.
    """
    network = parallel.module
    kind = nn.Module if isinstance(network, torch.jit.ScriptModule) else type(network)
    entered = False

    def call(_: Any, *arguments: Any, **named: Any) -> Any:
        nonlocal entered
        entered = True
        return parallel(*arguments, **named)

    def get(_: Any, name: str) -> Any:
        nonlocal entered
        if not entered and not (name.startswith("__") or name == "training"):
            entered = True
            with called_through(network, lambda: None):
                parallel()
        return getattr(network, name)

    def put(_: Any, name: str, value: Any) -> None:
        setattr(network, name, value)

    methods = {"__call__": call, "__getattribute__": get, "__setattr__": put}
    view = type(kind.__name__, (kind,), methods)
    made: nn.Module = object.__new__(view)
    return made
