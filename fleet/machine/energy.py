"""Counters of energy, read together: RAPL of processors and memory, drivers' sensors and NVML of accelerators.

RAPL lies below /sys/class/powercap (https://docs.kernel.org/power/powercap/powercap.html; its files belong to root
since 2020), the sensors of amdgpu (as ROCm-SMI reads it), xe and i915 below /sys/class/hwmon
(https://docs.kernel.org/hwmon/sysfs-interface.html). NVML needs the package nvidia-ml-py
(https://docs.nvidia.com/deploy/nvml-api): GPUs since Volta count millijoules, older ones give milliwatts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from preprocess.files.reading import read_text

MOST_BYTES = 1 << 16
"""Of a file of the kernel: a person may name a folder in which others lie."""

Step = Callable[[], float]
"""Joules since the last call, or since it was made. OSError or ValueError: it cannot be read any more."""


@dataclass(frozen=True)
class Counter:
    """One counter.

    Attributes:
        source: what gives it: rapl, hwmon or nvml.
        devices: it counts their energy, by number: all of its accelerator, or all of its host.
        step: joules since the last call.
    """

    source: str
    devices: tuple[int, ...]
    step: Step


class CountedEnergy:
    """Steps of a counter of joules that begins anew at 0 where it has reached its range.

    Args:
        total: reads it, joules.
        span: joules at which it begins anew; 0: it says nothing of that.
    """

    def __init__(self, total: Callable[[], float], span: float = 0.0) -> None:
        self._total, self._span = total, span
        self._last = total()

    def __call__(self) -> float:
        now, last = self._total(), self._last
        self._last = now
        if now >= last:
            return now - last
        return now - last + self._span if self._span > last else now


class IntegratedPower:
    """Steps of a sensor of power: the mean of two readings, times the seconds between them.

    Args:
        watts: reads it.
        clock: seconds.
    """

    def __init__(self, watts: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._watts, self._clock = watts, clock
        self._last, self._since = watts(), clock()

    def __call__(self) -> float:
        now, watts = self._clock(), self._watts()
        joules = (now - self._since) * (watts + self._last) / 2
        self._last, self._since = watts, now
        return joules


def millionths(file: Path) -> float:
    """Return what a file of the kernel says in millionths of a unit: joules of microjoules."""
    return int(read_text(file, MOST_BYTES)) / 1e6


_ZONES = "intel-rapl:*"
_COUNTED = ("package", "dram")  # a package counts its cores; its memory has a zone of its own; psys counts both again


def zones(folder: Path) -> list[Path]:
    """The files of the counters that add up to a host's processors and memory, readable or not."""
    return [zone / "energy_uj" for zone in sorted(folder.glob(_ZONES)) if _is_counted(zone)]


def rapl_steps(folder: Path) -> Iterator[Step]:
    """Counters of those that can be read."""
    for file in zones(folder):
        with suppress(OSError, ValueError):
            span = 0.0
            with suppress(OSError, ValueError):
                span = millionths(file.with_name("max_energy_range_uj"))
            yield CountedEnergy(partial(millionths, file), span)


def _is_counted(zone: Path) -> bool:
    try:
        name = read_text(zone / "name", MOST_BYTES, "replace")
        return name.startswith(_COUNTED) and (zone / "energy_uj").exists()
    except OSError:
        return False


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
        """Return what was used since the last call."""
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
