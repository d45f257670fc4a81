"""Marks in a device's stream, which the host waits for without spinning."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from trainers.device.nap import nap
from trainers.device.own_device import select


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
            nap(time.perf_counter() - begin, longest=0.001)

    return wait
