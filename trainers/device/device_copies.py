"""Copies of tensors between a device and the host, and of many small tensors together.

EasyScale, SC'23, 3.2: a worker's gradients leave the device while the next worker computes, so that device memory does
not grow with the number of workers. Copies to pinned memory go on a side stream, for any accelerator that torch knows;
a CPU needs none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from trainers.device.synchronization import mark, with_index


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
