"""Energy of an accelerator by its driver's sensors, below /sys/class/hwmon: amdgpu (as ROCm-SMI reads it), xe, i915.

The kernel's documentation: https://docs.kernel.org/hwmon/sysfs-interface.html.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

from fleet.machine.energy.counter import MOST_BYTES, CountedEnergy, IntegratedPower, Step, millionths
from preprocess.files.reading import read_text

DRIVERS = ("amdgpu", "xe", "i915")
_ENERGY, _POWER = "energy1_input", ("power1_average", "power1_input")


def sensors(folder: Path) -> dict[Path, str]:
    """The folders of accelerators' sensors that tell energy or power, and their drivers."""
    found = {}
    for sensor in sorted(folder.glob("hwmon*")):
        with suppress(OSError):
            driver = read_text(sensor / "name", MOST_BYTES, "replace").strip()
            if driver in DRIVERS and any((sensor / name).exists() for name in (_ENERGY, *_POWER)):
                found[sensor] = driver
    return found


def hwmon_step(address: str, folder: Path) -> Step | None:
    """The counter of the accelerator with this PCI address; None if its driver gives none that can be read."""
    for sensor in sensors(folder):
        if (sensor / "device").resolve().name.lower() == address:
            with suppress(OSError, ValueError):
                return CountedEnergy(partial(millionths, sensor / _ENERGY))
            for name in _POWER:
                with suppress(OSError, ValueError):
                    return IntegratedPower(partial(millionths, sensor / name))
    return None
