"""Networks and optimizers that are looked at and not trained: on torch's meta device, where tensors have no memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

Built = TypeVar("Built")


def without_memory(build: Callable[[], Built]) -> Built:
    """Return what `build` gives, its tensors on the meta device; real ones if it looks at their numbers."""
    with contextlib.suppress(Exception, SystemExit), torch.device("meta"):
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
