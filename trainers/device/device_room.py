"""How much more a device can hold for a job than it needed so far."""

from __future__ import annotations

from typing import Any

import torch

_SPARE = 0.1
"""Part of a device's memory that stays free: allocators lose some between blocks, and libraries take theirs late."""
_LEFT = 0.05
"""Part of it that must be left where a batch is said to fit: what leaves `_SPARE` now may need a little more later."""


def share_of(members: int) -> float:
    """Return what part of a device's memory each may take, where so many processes train on it."""
    return 1.0 if members == 1 else (1 - _SPARE) / members


def keep_to_share(device: torch.device, members: int) -> None:
    """Let this process take no more than its share of a device's memory, where torch can limit it."""
    limit = getattr(torch.get_device_module(device), "set_per_process_memory_fraction", None) if members > 1 else None
    if limit is not None:
        limit(share_of(members), device)


def forget_peak(device: torch.device) -> None:
    """Let the most that is in use at once be counted from now on."""
    module: Any = torch.get_device_module(device)
    if hasattr(module, "reset_peak_memory_stats"):
        module.reset_peak_memory_stats(device)


def room_on(device: torch.device) -> float:
    """Return the bytes that were never in use since `forget_peak`, but for a spare part; 0 if nobody counts them.

    Where the process keeps to a share of the device, only that counts: others take theirs at any time.
    """
    module: Any = torch.get_device_module(device)
    if not all(hasattr(module, name) for name in ("mem_get_info", "memory_reserved", "max_memory_allocated")):
        return 0.0
    free, total = module.mem_get_info(device)
    own = total * getattr(module, "get_per_process_memory_fraction", lambda _: 1.0)(device)
    most = min(free + module.memory_reserved(device), own)
    return float(most - module.max_memory_allocated(device) - _SPARE * own)


def is_nearly_full(device: torch.device) -> bool:
    """Tell whether hardly any of the device's memory was left at some time since `forget_peak`; no if nobody counts."""
    module: Any = torch.get_device_module(device)
    if not hasattr(module, "mem_get_info"):
        return False
    own = module.mem_get_info(device)[1] * getattr(module, "get_per_process_memory_fraction", lambda _: 1.0)(device)
    return room_on(device) < (_LEFT - _SPARE) * own
