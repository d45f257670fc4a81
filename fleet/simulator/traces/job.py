"""One job of a trace."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from fleet.scheduling.model.jobs import ServiceLevel


@dataclass(frozen=True)
class TraceJob:
    """What a trace says of one job. None: it does not say.

    Attributes:
        name: unique in the trace.
        arrival: seconds since the first arrival of the trace.
        devices: how many it asks for: the size of its gang, where it is not elastic.
        model: the application; a table of rates knows it by this name.
        batch_size: samples of one step of the whole job.
        work: steps at that batch size.
        samples: work x batch_size.
        deadline: seconds, on the scale of `arrival`.
        duration: seconds of training on `devices`.
        limit: most devices that it can use.
        minimum_devices: the fewest devices that it runs on; none does where it is not said.
        workers: virtual workers N; a step on m devices takes ceil(N / m) turns.
        epochs: epochs of training.
        service_devices: devices that it is promised in the mean of each window; none where it is not said.
        service_window: seconds of such a window.
        priority: the larger goes first.
        kind: the kind of device that it prefers.
        mixed: whether devices of several kinds may train it at once.
        soft: whether it is still worth something after its deadline.
        stream: jobs of the same stream can share samples at the same epoch; empty: it shares with nobody.
        tenant: for whom it runs: a user, a virtual cluster.
        outcome: how it ended when the trace was taken.
        further: epochs that may follow as other jobs, once this one is done; see `JobState`.
        line: its line in the trace's file, from 1.

    Raises:
        ValueError: a number that no job can have.
    """

    name: str
    arrival: float
    devices: int
    model: str = ""
    batch_size: int | None = None
    work: float | None = None
    samples: float | None = None
    deadline: float | None = None
    duration: float | None = None
    limit: int | None = None
    minimum_devices: int | None = None
    workers: int | None = None
    epochs: float | None = None
    service_devices: float | None = None
    service_window: float | None = None
    priority: int = 0
    kind: str = ""
    mixed: bool = True
    soft: bool = False
    stream: str = ""
    tenant: str = ""
    outcome: str = ""
    further: float = field(default=0.0, kw_only=True)
    line: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.arrival) and self.arrival >= 0):
            raise ValueError(f"job {self.name}: arrival is {self.arrival} s; it must be 0 or more, and finite")
        if self.deadline is not None and not self.deadline >= self.arrival:
            raise ValueError(f"job {self.name}: deadline {self.deadline} s lies before arrival {self.arrival} s")
        for name in ("devices", "batch_size", "limit", "minimum_devices", "workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"job {self.name}: {name} is {value}; it must be 1 or more")
        if self.minimum_devices is not None and self.minimum_devices > self.devices:
            what = f"minimum_devices {self.minimum_devices} are more than the {self.devices} devices"
            raise ValueError(f"job {self.name}: {what} that it asks for")
        for name in ("work", "samples", "duration", "epochs", "service_devices", "service_window"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"job {self.name}: {name} is {value}; it must be above 0, and finite")
        if (self.service_devices is None) != (self.service_window is None):
            raise ValueError(f"job {self.name}: of service_devices and service_window one is given; give both, or none")

    @property
    def service_level(self) -> ServiceLevel | None:
        """What it is promised."""
        if self.service_devices is None or self.service_window is None:
            return None
        return ServiceLevel(self.service_devices, self.service_window)
