"""Which of this host's counters of energy runs can read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from fleet.machine.devices import FILES
from fleet.machine.doctor.check import Check, Verdict
from fleet.machine.energy.hwmon import sensors
from fleet.machine.energy.powercap import zones


def check_energy(powercap: Path, hwmon: Path, devices: Path = FILES) -> Iterator[Check]:
    """Look for counters.

    Args:
        powercap, hwmon: folders of the kernel's files.
        devices: the folder of the system's devices.
    """
    found, mends = [], []
    counters = zones(powercap)
    closed = [file for file in counters if not os.access(file, os.R_OK)]
    if closed:
        mends.append(
            f"only root can read {len(closed)} of {len(counters)} counters of RAPL: "
            f"sudo chmod a+r {powercap}/*/energy_uj, after each start of the host"
        )
    if len(counters) > len(closed):
        found.append(f"rapl of {len(counters) - len(closed)} zones")
    drivers = sensors(hwmon)
    if drivers:
        found.append(f"{', '.join(sorted(set(drivers.values())))} of {len(drivers)} GPUs")
    nvidia = len(list(devices.glob("nvidia[0-9]*")))
    if nvidia and find_spec("pynvml") is not None:
        found.append(f"NVML of {nvidia} GPUs")
    elif nvidia:
        mends.append('NVIDIA\'s GPUs tell it through a package: pip install "fleet-hpc[energy]"')
    if not counters and not drivers and not nvidia:
        mends.append("this host shows none, as virtual ones do; runs say nothing of energy here")
    works = found and not mends
    verdict, text = Verdict.OK if works else Verdict.MISSING, "; ".join(found) or "nothing is read"
    yield Check("energy", verdict, text, "; ".join(mends))
