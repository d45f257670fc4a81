"""What a script asks of other machines, given on this one: GPUs that are not here, and the other processes."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode

from trainers.messages.torch_backend import on_loopback


@contextmanager
def alone(compiled: Callable[[Any], None]) -> Iterator[None]:
    """Let a script that wants several processes be one, and compute on the CPU where its GPUs are not there.

    Args:
        compiled: is told of each network that torch.compile is given; it stays as it is.
    """
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, _one_rank()))
        stack.enter_context(patch.object(dist, "init_process_group", _joined))
        stack.enter_context(patch.object(mp, "spawn", _called_here))
        stack.enter_context(patch.object(torch, "compile", _uncompiled(compiled)))
        if not torch.accelerator.is_available():
            for place in _on_cpu():
                stack.enter_context(place)
            stack.enter_context(_OnCpu())
        try:
            yield
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()


def _one_rank() -> dict[str, str]:
    """What torchrun tells a process that is alone."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", **on_loopback()}
    return own | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


_join = dist.init_process_group


def _joined(backend: str | None = None, *_: Any, **__: Any) -> None:
    if not torch.accelerator.is_available() or backend is None:
        backend = "gloo"
    store = dist.HashStore()  # type: ignore[attr-defined]  # it listens nowhere
    _join(backend, store=store, rank=0, world_size=1)


def _called_here(fn: Callable[..., Any], args: tuple[Any, ...] = (), *_: Any, **__: Any) -> None:
    """The first of the processes that a script would start, in this one."""
    fn(0, *args)


def _uncompiled(tell: Callable[[Any], None]) -> Callable[..., Any]:
    def taken(model: Any = None, **_: Any) -> Any:
        if model is None:
            return lambda inner: taken(inner)
        tell(model)
        return model

    return taken


def _here(device: Any) -> Any:
    """A device of this machine in the place of one that is not there."""
    if isinstance(device, torch.device):
        return device if device.type in ("cpu", "meta") else torch.device("cpu")
    named = isinstance(device, str) and device.partition(":")[0] not in ("cpu", "meta")
    return torch.device("cpu") if named or (isinstance(device, int) and not isinstance(device, bool)) else device


class _OnCpu(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.to and len(args) > 1 and not isinstance(args[1], torch.Tensor):
            args = (args[0], _here(args[1]), *args[2:])
        if keywords.get("device") is not None:
            keywords["device"] = _here(keywords["device"])
        if name == "pin_memory":
            return args[0]
        return func(*args, **keywords)


_to, _wrap = nn.Module.to, DistributedDataParallel.__init__


def _moved(self: nn.Module, *args: Any, **keywords: Any) -> nn.Module:
    if "device" in keywords:
        keywords["device"] = _here(keywords["device"])
    return _to(self, *(_here(each) for each in args), **keywords)


def _wrapped(self: Any, module: nn.Module, *_: Any, **keywords: Any) -> None:
    _wrap(self, module, **{key: value for key, value in keywords.items() if key not in ("device_ids", "output_device")})


def _on_cpu() -> Iterator[Any]:
    """What only a GPU could do, done without one."""
    yield patch.object(nn.Module, "to", _moved)
    yield patch.object(nn.Module, "cuda", lambda self, *_: self)
    yield patch.object(DistributedDataParallel, "__init__", _wrapped)
    for name in ("set_device", "synchronize", "empty_cache", "manual_seed_all"):
        yield patch.object(torch.cuda, name, lambda *_, **__: None)
