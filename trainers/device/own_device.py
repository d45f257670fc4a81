"""A device as the one that a thread works on.

torch keeps the current device for each thread, and a new thread's is the first: what a thread does without selecting
another opens that one too, or waits on its stream.
"""

from __future__ import annotations

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
