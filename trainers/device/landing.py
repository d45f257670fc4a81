"""Gradients in memory of their own, as they are without buckets.

Kernels add in another order where memory is not aligned, so an optimizer or a norm that read a bucket's parts could
have other bits than with DDP, whose gradients are copies too.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Landing:
    """Tensors on `device`, in the same memory each step, whose shapes and strides do not change."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._tensors: list[Tensor] = []

    def like(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return tensors of the shapes and strides of those of the first call."""
        if not self._tensors:
            self._tensors = [torch.empty_like(each, device=self._device) for each in tensors]
        return self._tensors
