"""A counter of energy, whatever gives it: joules since the last look."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
    """What a file of the kernel says in millionths of a unit: joules of microjoules."""
    return int(read_text(file, MOST_BYTES)) / 1e6
