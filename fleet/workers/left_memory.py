"""The memory that a job leaves to a trainer rank: for the next job, or for others."""

from __future__ import annotations

import gc

import torch

from trainers.device.allocator import give_freed_memory_back
from trainers.step.compiled import forget_graphs

_KEPT = 256 << 20
"""Bytes of the host that stay for the next job."""


class LeftMemory:
    """Keeps little for a job that comes at once, and gives the rest back.

    Args:
        device: of the trainer.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._is_kept = False

    def give_back(self) -> None:
        """Give back all that ended jobs have left."""
        self._end(0)

    def leave(self) -> None:
        """A job has ended: give back what it leaves, but for what the next one on the host is about to want."""
        self._end(_KEPT)
        self._is_kept = True

    def rest(self) -> None:
        """No job has come for a while: give back what was kept for it."""
        if self._is_kept:
            self._is_kept = False
            give_freed_memory_back(self._device)

    def _end(self, unless: int) -> None:
        gc.collect()  # a trainer and its parts know each other
        forget_graphs()
        give_freed_memory_back(self._device, unless)
