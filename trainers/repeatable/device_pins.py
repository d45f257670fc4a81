"""What an accelerator's results depend on beside its name: its software, and how many multiprocessors it has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

_DRIVERS = (Path("/sys/module/nvidia/version"), Path("/sys/module/amdgpu/version"))


def device_pins(device: torch.device) -> dict[str, str]:
    """Return the pins of a device by name; none of the CPU, and of what torch does not tell.

    Kernels split sums over the multiprocessors, and dropout draws by their number.
    """
    if device.type == "cpu":
        return {}
    properties = torch.get_device_module(device).get_device_properties(device)
    told = {
        "multiprocessors": getattr(properties, "multi_processor_count", None)
        or getattr(properties, "max_compute_units", None),
        "cuda": torch.version.cuda,
        "rocm": torch.version.hip,
        "cudnn": torch.backends.cudnn.version(),  # MIOpen's, with ROCm
        "driver": getattr(properties, "driver_version", None) or next(_drivers(), None),
    }
    return {name: str(value) for name, value in told.items() if value}


def _drivers() -> Iterator[Any]:
    for path in _DRIVERS:
        with suppress(OSError):
            yield path.read_text().strip()
