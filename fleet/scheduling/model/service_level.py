"""What a job is promised of the devices: so many in the mean of each window of time (a service level)."""

from __future__ import annotations

import math
from dataclasses import dataclass

TOLERANCE = 0.02
"""The part of what is promised that may be missing: what leaving, and waiting for others to leave, takes."""


@dataclass(frozen=True)
class ServiceLevel:
    """So many devices in the mean of each window; windows end at multiples of their length.

    The first one begins when the policy first sees the job, and is half as long as the others at least.

    Attributes:
        devices: 0.5: one device for half of the time, or two for a quarter of it.
        window: seconds.

    Raises:
        ValueError: one of them is not above 0, or not finite.
    """

    devices: float
    window: float

    def __post_init__(self) -> None:
        for name in ("devices", "window"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ValueError(f"{name} of a service level is {value}; it must be above 0, and finite")


@dataclass(frozen=True)
class ServiceWindow:
    """What became of the promise for a window.

    Attributes:
        job: whose.
        begin, end: seconds since the run began.
        promised: device-seconds.
        had: device-seconds that it had until it was known what becomes of the promise: that may be before the end.
        broken: whether more than the tolerance was missing.
    """

    job: str
    begin: float
    end: float
    promised: float
    had: float
    broken: bool
