"""The counters of a host, read together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet.machine.energy.counter import Counter
from fleet.machine.energy.hwmon import hwmon_step
from fleet.machine.energy.nvml import nvml_step
from fleet.machine.energy.powercap import rapl_steps


@dataclass(frozen=True)
class EnergyReading:
    """What a host's counters say.

    Attributes:
        seconds: since the reading before, or since they were found.
        joules: for each counter the devices whose energy it counts, and joules in that time.
        gone: sources of counters that cannot be read any more, told once.
    """

    seconds: float
    joules: tuple[tuple[tuple[int, ...], float], ...]
    gone: tuple[str, ...] = ()


class Meter:
    """Reads counters; one that cannot be read any more is left out from then on.

    Args:
        counters: one host has these.
        clock: seconds.
    """

    def __init__(self, counters: Iterable[Counter], clock: Callable[[], float] = time.monotonic) -> None:
        self._counters, self._clock = list(counters), clock
        self._since = clock()

    @property
    def sources(self) -> tuple[str, ...]:
        """What is read: rapl, hwmon, nvml."""
        return tuple(sorted({counter.source for counter in self._counters}))

    def read(self) -> EnergyReading:
        """What was used since the last call."""
        found, left, gone = [], [], []
        for counter in self._counters:
            try:
                found.append((counter.devices, max(0.0, counter.step())))
                left.append(counter)
            except (OSError, ValueError):
                gone.append(counter.source)
        self._counters = left
        now = self._clock()
        seconds, self._since = now - self._since, now
        return EnergyReading(seconds, tuple(found), tuple(gone))


def find_counters(
    devices: tuple[int, ...], accelerators: Mapping[str, tuple[int, ...]], powercap: Path, hwmon: Path
) -> list[Counter]:
    """The counters that a host has and lets this process read.

    Args:
        devices: the run has these on this host.
        accelerators: PCI address -> those of them that are on it.
        powercap, hwmon: folders of the kernel's files.
    """
    found = [Counter("rapl", devices, step) for step in rapl_steps(powercap)]
    for address, those in accelerators.items():
        for source, step in (("hwmon", hwmon_step(address, hwmon)), ("nvml", nvml_step(address))):
            if step is not None:
                found.append(Counter(source, those, step))
                break
    return found
