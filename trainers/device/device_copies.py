"""Gradients between a device and pinned host memory, on a side stream, beside the computation.

EasyScale, SC'23, 3.2: a worker's gradients leave the device while the next worker computes, so that device memory does
not grow with the number of workers. For any accelerator that torch knows; a CPU needs none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from trainers.device.mark import mark
from trainers.device.own_device import with_index


class DeviceCopies:
    """Copies between `device` and the host, all in order on one stream of their own."""

    def __init__(self, device: torch.device) -> None:
        self._device = with_index(device)
        self._module: Any = torch.get_device_module(device)
        self._side = self._module.Stream(device=self._device)

    def take(self, factor: float, gradients: Sequence[Tensor], views: Sequence[Tensor]) -> None:
        """Scale gradients on the device and copy them to `views`, in pinned memory; copies are under way on return.

        The gradients themselves stay as they are: others may lie in the same memory.
        """
        scaled = torch._foreach_mul(list(gradients), factor)
        self._side.wait_stream(self._module.current_stream(self._device))
        with self._module.stream(self._side):
            for view, gradient in zip(views, scaled):
                view.copy_(gradient, non_blocking=True)
        for gradient in scaled:
            gradient.record_stream(self._side)

    def zero(self, view: Tensor) -> None:
        """Zero `view`, in pinned memory, once no earlier copy uses it."""
        self._side.synchronize()
        view.zero_()

    def mark(self) -> Callable[[], None]:
        """Return a function that sleeps until the copies begun so far are complete, in whichever thread."""
        return mark(self._device, self._side)

    def give(self, tensors: Sequence[Tensor], landed: Sequence[Tensor]) -> None:
        """Copy tensors to `landed`, on the device; later work on the device waits for them."""
        self._side.wait_stream(self._module.current_stream(self._device))
        with self._module.stream(self._side):
            torch._foreach_copy_(list(landed), list(tensors), non_blocking=True)
        self._module.current_stream(self._device).wait_stream(self._side)
