"""The device that a thread works on, and waits for what it does, without spinning.

torch keeps the current device for each thread, and a new thread's is the first: what a thread does without selecting
another opens that one too, or waits on its stream.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import torch


def select(device: torch.device) -> None:
    """Make the device this thread's; on the CPU, and where the device is told without an index, it is so already."""
    if device.type != "cpu" and device.index is not None:
        torch.get_device_module(device).set_device(device)


def with_index(device: torch.device) -> torch.device:
    """Return the device with its index: this thread's current one if it has none."""
    if device.type == "cpu" or device.index is not None:
        return device
    return torch.device(device.type, torch.get_device_module(device).current_device())


def why_broken(device: torch.device) -> str:
    """Say what has made a device useless to this process; "" if it can be used.

    Where a kernel fails (an assertion in it, an illegal address), whatever the process does on the device from then on
    fails too; only a new process can use the device again.
    """
    if device.type == "cpu":
        return ""
    try:
        torch.get_device_module(device).synchronize(device)
    except RuntimeError as error:
        return str(error)
    return ""


def mark(device: torch.device, stream: Any = None) -> Callable[[], None]:
    """Return a function that sleeps until a stream has done all that it was given so far, in whichever thread.

    stream: it belongs to `device`; None: the thread's current one.
    """
    event = torch.Event(device)
    event.record(stream or torch.get_device_module(device).current_stream(device))

    def wait() -> None:
        select(device)
        begin = time.perf_counter()
        while not event.query():  # `synchronize` spins, as torch.Event ignores `blocking`
            backoff(time.perf_counter() - begin, longest=0.001)

    return wait


LONGEST_BACKOFF = 200e-6


def backoff(elapsed: float, eager: float = 50e-6, longest: float = LONGEST_BACKOFF) -> None:
    """Let others have the processor between two looks, `elapsed` seconds after the first; the later, the longer."""
    if elapsed > eager:
        time.sleep(min(elapsed / 4, longest))
    else:
        os.sched_yield()
