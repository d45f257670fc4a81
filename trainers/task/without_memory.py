"""Networks and optimizers that are looked at and not trained: on torch's meta device, where tensors have no memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from trainers.repeatable.spared_compiler import spare_compiler

Built = TypeVar("Built")
_DRAWS = {torch.ops.aten.normal_.default, torch.ops.aten.uniform_.default}


class _NoDraws(TorchDispatchMode):
    """Draws no numbers for tensors without memory: torch takes a millisecond of Python for each weight."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _DRAWS and args[0].is_meta:
            return args[0]
        return func(*args, **(kwargs or {}))


def without_memory(build: Callable[[], Built]) -> Built:
    """Return what `build` gives, its tensors on the meta device; real ones if it looks at their numbers."""
    spare_compiler((_NoDraws,))
    with contextlib.suppress(Exception, SystemExit), torch.device("meta"), _NoDraws():
        return build()
    return build()


def model_without_memory(build: Callable[[], nn.Module]) -> nn.Module:
    """Return the network that `build` gives, on the meta device however it is built."""
    model, moved = without_memory(build), dict[int, Tensor]()
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None and weight.device.type != "meta":
                there = nn.Parameter(weight.detach().to("meta"), weight.requires_grad)
                module._parameters[name] = moved.setdefault(id(weight), there)  # type: ignore[assignment]
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = moved.setdefault(id(buffer), buffer.to("meta"))
    return model
