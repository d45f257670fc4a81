"""Energy of processors and memory by RAPL, of Intel's and AMD's processors: below /sys/class/powercap.

The kernel's documentation: https://docs.kernel.org/power/powercap/powercap.html. The files belong to root since 2020.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from fleet.machine.energy.counter import MOST_BYTES, CountedEnergy, Step, millionths
from preprocess.files.reading import read_text

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
