"""Energy of an accelerator by NVIDIA's management library, if the package nvidia-ml-py is installed.

https://docs.nvidia.com/deploy/nvml-api: GPUs since Volta count millijoules, older ones give milliwatts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fleet.machine.energy.counter import CountedEnergy, IntegratedPower, Step


def nvml_step(address: str) -> Step | None:
    """The counter of the accelerator with this PCI address; None if NVML gives none."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(address.encode())
    except pynvml.NVMLError:
        return None
    for call, kind in (
        (pynvml.nvmlDeviceGetTotalEnergyConsumption, CountedEnergy),
        (pynvml.nvmlDeviceGetPowerUsage, IntegratedPower),
    ):
        try:
            return kind(partial(_thousandths, call, handle, pynvml.NVMLError))
        except OSError:
            continue
    return None


def _thousandths(call: Callable[[Any], int], handle: Any, kind: type[Exception]) -> float:
    try:
        return call(handle) / 1e3
    except kind as error:
        raise OSError(f"NVML: {error}") from error
