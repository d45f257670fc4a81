"""Memory of the host between steps, and room on a device.

A step ends with all of its activations and gradients freed, and the C library gives the free end of its heap back to
the system at once; the next step's first touch of each page is then a fault. That costs a step some 3 % (the ResNet of
the benchmark: 7,000 faults, 28 MB). So what one step frees stays with the process, as the next asks for as much again.
"""

from __future__ import annotations

import ctypes
import math
import os
from typing import Any

import torch

_KEPT = 1 << 30
"""Bytes at the end of the heap that stay."""
_LARGEST_IN_HEAP = 32 << 20
"""Bytes; larger ones are mapped singly and go back as soon as they are freed. The C library takes no larger value."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")


def keep_freed_memory() -> None:
    """Let the process keep up to 1 GiB that it freed.

    Only glibc can be asked; nothing is changed elsewhere, nor where its own variables (mallopt(3)) say what to do.
    """
    mallopt = _of_glibc("mallopt")
    told = any(os.environ.get(name) for name in _VARIABLES) or "malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if mallopt is not None and not told:
        mallopt(_TRIM_THRESHOLD, _KEPT)
        mallopt(_MMAP_THRESHOLD, _LARGEST_IN_HEAP)


def give_freed_memory_back(device: torch.device, unless: int = 0) -> None:
    """Give the system all that is free on the host and on the device, as when a job has ended and the next is small.

    unless: what is free on the host stays if it is no more than so many bytes. Who comes next touches it anew
    otherwise, page by page, which takes as long as several steps of a small network.
    """
    trim = _of_glibc("malloc_trim")
    if trim is not None and _free_bytes() > unless:
        trim(ctypes.c_size_t(0))
    if device.type != "cpu":
        torch.get_device_module(device).empty_cache()
        give_pinned_memory_back()


def give_pinned_memory_back() -> None:
    """Give the system the freed memory of the host that devices copied to and from: torch keeps it for ever."""
    of_cuda = getattr(torch._C, "_host_emptyCache", None)  # older versions of torch have no other
    empty_host_cache = getattr(torch.accelerator, "empty_host_cache", of_cuda)
    if empty_host_cache is not None:
        empty_host_cache()


class _Mallinfo(ctypes.Structure):
    """struct mallinfo2 of malloc.h."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


def _free_bytes() -> float:
    """Return how many bytes of the heap are free; infinite where the C library does not say (before glibc 2.33)."""
    ask = _of_glibc("mallinfo2")
    if ask is None:
        return math.inf
    ask.restype = _Mallinfo
    return float(ask().fordblks)


def _of_glibc(name: str) -> Any:
    """Return a function of the C library; None where it has none of this name."""
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None


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
