"""What holds for a whole process or a whole model, and somebody's code may change for a while.

Scripts do so in their first lines (`torch.backends.cudnn.benchmark = True`), and so may a network's own module when it
is imported, or its constructor. Here a process trains many networks, one after another, and imports a module once: what
it set would change the networks that come later, and no longer be there where its own network goes on in another
process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import NoReturn

import torch
from torch import nn

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
