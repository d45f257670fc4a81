"""The device that a thread works on: its waits, without spinning, and copies between it and the host.

torch keeps the current device for each thread, and a new thread's is the first: what a thread does without selecting
another opens that one too, or waits on its stream. Gradients leave a device while the next worker computes, so that its
memory does not grow with the number of workers (EasyScale, SC'23, 3.2): on a side stream, to pinned memory, for any
accelerator that torch knows. A CPU needs none of this.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor


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


class DeviceCopies:
    """Copies between `device` and the host; those to the host in order on one stream of their own."""

    def __init__(self, device: torch.device) -> None:
        self._device = with_index(device)
        self._module: Any = torch.get_device_module(device)
        self._side = self._module.Stream(device=self._device)

    def take(self, factor: float, gradients: Sequence[Tensor], views: Sequence[Tensor]) -> None:
        """Scale gradients on the device and copy them to `views`, in pinned memory; copies are under way on return.

        The gradients themselves stay as they are: others may lie in the same memory. Those of one type are scaled by
        two kernels, and where their views lie one behind another they are one copy.
        """
        for dtype in dict.fromkeys(view.dtype for view in views):
            places = [place for place, view in enumerate(views) if view.dtype == dtype]
            self._take([gradients[place] for place in places], factor, [views[place] for place in places])

    def _take(self, gradients: Sequence[Tensor], factor: float, views: Sequence[Tensor]) -> None:
        flat = torch.empty(sum(view.numel() for view in views), dtype=views[0].dtype, device=self._device)
        starts = list(accumulate((view.numel() for view in views), initial=0))
        scaled = [flat.as_strided(view.size(), view.stride(), start) for view, start in zip(views, starts)]
        torch._foreach_copy_(scaled, list(gradients))
        torch._foreach_mul_(scaled, factor)
        self._side.wait_stream(self._module.current_stream(self._device))
        with self._module.stream(self._side):
            for landing, start in _runs(views, starts):
                landing.copy_(flat[start : start + landing.numel()], non_blocking=True)
        flat.record_stream(self._side)

    def mark(self) -> Callable[[], None]:
        """Return a function that sleeps until the copies begun so far are complete, in whichever thread."""
        return mark(self._device, self._side)

    def give(self, tensors: Sequence[Tensor], landed: Sequence[Tensor]) -> None:
        """Copy tensors to `landed`, on the device, in its own stream: what comes later there waits for them anyway."""
        torch._foreach_copy_(list(landed), list(tensors), non_blocking=True)


def _runs(views: Sequence[Tensor], starts: Sequence[int]) -> Iterator[tuple[Tensor, int]]:
    """Give flat tensors, each of as many views as lie one behind another in their memory, with the start of the first.

    They are contiguous, in some order of their dimensions.
    """
    first = 0
    for place in range(1, len(views) + 1):
        last = views[place - 1]
        end = last.storage_offset() + last.numel()
        follows = place < len(views) and (
            views[place].storage_offset() == end
            and views[place].untyped_storage().data_ptr() == last.untyped_storage().data_ptr()
        )
        if not follows:
            begin = views[first].storage_offset()
            yield views[first].as_strided((end - begin,), (1,), begin), starts[first]
            first = place


def copy_all(to: Sequence[Tensor], origin: Sequence[Tensor]) -> None:
    """Copy each of `origin` into the one of `to` in its place; a device makes one kernel of those of one type."""
    if not to:  # many networks have no buffers, and each turn asks
        return
    with torch.no_grad():
        for dtype in dict.fromkeys(tensor.dtype for tensor in to):
            chosen = [place for place, tensor in enumerate(to) if tensor.dtype == dtype]
            torch._foreach_copy_([to[place] for place in chosen], [origin[place] for place in chosen])


@torch.no_grad()
def copies_of(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return a copy of each."""
    copies = [torch.empty_like(tensor) for tensor in tensors]
    copy_all(copies, tensors)
    return copies
