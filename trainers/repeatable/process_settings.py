"""What holds for a whole process or a whole model, and somebody's code may change for a while.

Scripts do so in their first lines (`torch.backends.cudnn.benchmark = True`), and so may a network's own module when it
is imported, or its constructor. Here a process trains many networks, one after another, and imports a module once: what
it set would change the networks that come later, and no longer be there where its own network goes on in another
process.

A process also does without torch's compiler until something compiles. torch 2.13 loads `torch._dynamo` when the first
optimizer is made: 820 modules, 0.5 to 0.9 s of a processor and 75 MB in every rank, and thousands of ranks read them
from one file system. It needs the compiler only to mark what compiled code must leave alone, which means nothing while
nothing is compiled. Once something else has loaded it, torch does as ever.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache, wraps
from types import FunctionType
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from trainers.repeatable.determinism import Float32, float32_on, set_float32

_CPU, _GPU = torch.device("cpu"), torch.device("cuda")


@dataclass(frozen=True)
class ProcessSettings:
    """The settings of a process as they are at one time.

    cudnn: whether its kernels are deterministic, tried for speed, and used at all.
    dtype, device: of new tensors, where nothing else is said.
    gradients, anomalies: whether autograd records, and looks for numbers that are none.
    folder: the current one; "" if it is gone.
    """

    threads: int
    deterministic: int
    cudnn: tuple[bool, bool, bool]
    float32: tuple[Float32, Float32]
    dtype: torch.dtype
    device: torch.device
    gradients: bool
    anomalies: bool
    folder: str

    @classmethod
    def now(cls) -> ProcessSettings:
        """Take them as they stand."""
        cudnn = torch.backends.cudnn
        return cls(
            threads=torch.get_num_threads(),
            deterministic=torch.get_deterministic_debug_mode(),
            cudnn=(cudnn.deterministic, cudnn.benchmark, cudnn.enabled),
            float32=(float32_on(_CPU), float32_on(_GPU)),
            dtype=torch.get_default_dtype(),
            device=torch.get_default_device(),
            gradients=torch.is_grad_enabled(),
            anomalies=torch.is_anomaly_enabled(),
            folder=_current_folder(),
        )

    def put_back(self) -> None:
        """Set what is not so any more."""
        now, cudnn = ProcessSettings.now(), torch.backends.cudnn
        if now.threads != self.threads:
            torch.set_num_threads(self.threads)
        if now.deterministic != self.deterministic:
            torch.set_deterministic_debug_mode(self.deterministic)
        if now.cudnn != self.cudnn:
            cudnn.deterministic, cudnn.benchmark, cudnn.enabled = self.cudnn
        if now.float32 != self.float32:
            set_float32(self.float32[1])
        if now.dtype != self.dtype:
            torch.set_default_dtype(self.dtype)
        if now.device != self.device:
            torch.set_default_device(None if self.device.type == "cpu" else self.device)
        if now.gradients != self.gradients:
            torch.set_grad_enabled(self.gradients)
        if now.anomalies != self.anomalies:
            torch.autograd.set_detect_anomaly(self.anomalies)
        if now.folder != self.folder and self.folder:
            os.chdir(self.folder)

    def changed(self) -> list[str]:
        """Return the names of those that are not so any more."""
        now = ProcessSettings.now()
        return [each.name for each in fields(self) if getattr(self, each.name) != getattr(now, each.name)]

    def relied_on(self) -> list[str]:
        """Return which of those that its code may rely on were set since, and that trainers do not set themselves."""
        now = ProcessSettings.now()
        dtype = [] if now.dtype == self.dtype else [f"the type of new tensors (torch.set_default_dtype) to {now.dtype}"]
        device = [] if now.device == self.device else [f"their device (torch.set_default_device) to {now.device}"]
        return dtype + device


def _current_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


@contextmanager
def settings_kept() -> Iterator[ProcessSettings]:
    """Let somebody's code run, and put back what it sets for the whole process; gives what was there before."""
    before = ProcessSettings.now()
    try:
        yield before
    finally:
        before.put_back()


@contextmanager
def no_exit() -> Iterator[None]:
    """Let `os._exit`, called in this thread inside the block, raise SystemExit instead; what is forked may end."""
    end, process, thread = os._exit, os.getpid(), threading.get_ident()

    def refuse(status: int) -> NoReturn:
        if (os.getpid(), threading.get_ident()) != (process, thread):
            end(status)
        raise SystemExit(f"its code called os._exit({status})")

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = end


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into eval mode, then each of its modules back into the mode that it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


_COMPILER = "torch._dynamo"
_KNOWN = "__dynamo_disable"
"""Where `_disable_dynamo` keeps what it has made of a function, so that it asks the compiler once."""
try:  # torch's own names, which another torch may not have: it loads its compiler then
    from torch._compile import _disable_dynamo
    from torch._decomp import decomposition_table, meta_table
    from torch.optim.optimizer import _use_grad_for_differentiable
except ImportError:
    _INNER = _STEP = None
    _OPERATORS: tuple[Any, ...] = ()
else:
    _INNER, _STEP = (around(lambda: None).__code__ for around in (_disable_dynamo, _use_grad_for_differentiable))
    """The code of what these two decorators make."""
    _OPERATORS = (*decomposition_table.values(), *meta_table.values())


def spare_compiler(modes: Iterable[type] = ()) -> None:
    """Let this process do without torch's compiler until something loads it.

    Optimizers do, and operators that torch has in Python, as the meta device's. modes: modes of dispatch that do, too.
    """
    if _COMPILER in sys.modules or _INNER is None:
        return
    _spare_torch()
    for mode in modes:
        _mark(vars(mode).get("__torch_dispatch__"))


@cache
def _spare_torch() -> None:
    for function in (*vars(Optimizer).values(), *_OPERATORS):
        _mark(function)
    for kind in vars(torch.optim).values():
        step = vars(kind).get("step") if isinstance(kind, type) else None
        if getattr(step, "__code__", None) is _STEP:
            kind.step = _stepping(step)


def _mark(function: Any) -> None:
    """Let a function's wrappers that would ask the compiler call what they wrap."""
    for asking, asked in _asking(function):
        if not hasattr(asked, _KNOWN):
            setattr(asked, _KNOWN, _until_loaded(asking, asked))


def _asking(function: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each wrapper of a function that asks the compiler at its first call, and what it asks about."""
    while isinstance(function, FunctionType):
        around = dict(zip(function.__code__.co_freevars, function.__closure__ or ())).get("fn")
        inside = None if around is None else around.cell_contents  # `__wrapped__` may skip some
        if function.__code__ is _INNER and inside is not None:
            yield function, inside
        function = inside


def _until_loaded(asking: Any, asked: Any) -> Callable[..., Any]:
    """Return what torch shall call for a function: the function itself, until the compiler is loaded."""

    def call(*args: Any, **options: Any) -> Any:
        if _COMPILER not in sys.modules:
            return asked(*args, **options)
        vars(asked).pop(_KNOWN, None)  # and torch asks the compiler
        return asking(*args, **options)

    return call


def _stepping(step: Any) -> Callable[..., Any]:
    """Return a step that turns gradients on or off as torch's own decorator does, without the compiler."""

    @wraps(step)
    def stepping(optimizer: Optimizer, *args: Any, **options: Any) -> Any:
        if _COMPILER in sys.modules:
            return step(optimizer, *args, **options)
        with torch.set_grad_enabled(optimizer.defaults["differentiable"]):
            return step.__wrapped__(optimizer, *args, **options)

    return stepping


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
