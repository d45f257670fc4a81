"""How much more a device can hold for a job than it needed so far."""

from __future__ import annotations

from typing import Any

import torch

_SPARE = 0.1
"""Part of a device's memory that stays free: allocators lose some between blocks, and libraries take theirs late."""


def forget_peak(device: torch.device) -> None:
    """Let the most that is in use at once be counted from now on."""
    module: Any = torch.get_device_module(device)
    if hasattr(module, "reset_peak_memory_stats"):
        module.reset_peak_memory_stats(device)


def room_on(device: torch.device) -> float:
    """Return the bytes that were never in use since `forget_peak`, but for a spare part; 0 if nobody counts them."""
    module: Any = torch.get_device_module(device)
    if not all(hasattr(module, name) for name in ("mem_get_info", "memory_reserved", "max_memory_allocated")):
        return 0.0
    free, total = module.mem_get_info(device)
    return float(free + module.memory_reserved(device) - module.max_memory_allocated(device) - _SPARE * total)
