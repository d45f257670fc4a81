"""One unfinished job as a policy sees it, and the service level that it may be promised."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

from fleet.scheduling.model.rates import RateCurve

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


class Scaling(Protocol):
    """How a job's speed depends on more than the number of its devices."""

    def rate(self, devices: int, batch: int | None = None, nodes: int = 1) -> float:
        """Samples/s on so many devices of one kind, on so many nodes, with `batch` samples in each step of the job."""
        ...

    def worker_rate(self, kind: str) -> float:
        """Mini-batches/s of one virtual worker that has a device of that kind for itself."""
        ...


@dataclass(frozen=True)
class JobState:
    """One unfinished job: what it asks for, and where it stands.

    Attributes:
        name: unique in the ensemble.
        rate: r(m), samples/s on m devices.
        limit: most devices that it can use: its virtual workers.
        epochs: epochs finished so far.
        stream: sharing class; jobs with the same one read the same samples next, and pace each other.
        data: its data set; samples/s of jobs with others say nothing about each other.
        passing: samples of its stream that go by for each of its own; 1 where all are.
        fed: samples/s that preprocessors alone feed it; infinite: nobody knows. `rate` is cut off there already, or at
            what they make together with trainers that may help, see `WithHelpers`.
        mixed_kinds: whether its devices may be of different kinds.
        arrival: seconds since the run began.
        deadline: seconds since the run began by which it should be done; infinite: any time will do.
        soft: whether it is still worth something after its deadline.
        gang: devices that it has where it is not elastic.
        minimum_devices: minP, the fewest devices that it runs on (EasyScale, SC'23, 3.4).
        priority: the larger is the more important.
        guaranteed: whether it takes devices from jobs that are not, at once.
        kind: the kind of device that it prefers; empty: any.
        tenant: for whom it runs.
        service_level: the devices that it is promised in the mean of each window; None: none.
        batch: samples in a step of the whole job.
        batches: the least and the most samples that a step may have; None: it is fixed.
        scaling: speeds by batch size, nodes and kind; None: there is `rate` alone.
        executor_rates: samples/s of 1, 2, ... of its trainers on one accelerator that nobody else uses; empty: nobody
            knows, or trainers share none.
        losses: the losses of the epochs so far.
        admitted: whether its deadline was promised.
        remaining: samples that were left at `ready`; infinite: nobody knows.
        least: samples that are left in any case until somebody says that it is done: live, those of a step.
        trained: samples that were trained until `ready`.
        epoch: samples of an epoch; 0: not known.
        lane: number of the lane that it reads while it has devices; jobs of a stream with the same one read together.
        attained: device-seconds until `since`.
        service_reset: the part of `attained` that no longer counts against it.
        since: when it got what it holds now, or lost all, seconds since the run began.
        ready: when training began there: `since` and what moving took.
        pace: samples/s from `ready` on.
        held: devices that it has had since then.
        restarts: how often it began anew on other devices.
        last: the devices that it lost last; its state is still near them.
        further: epochs that may be trained once it has ended, by it or by others, and not before: of a trial, to the
            last rung, where the end of its search may wait for it.
        ahead: whether it trains what nobody needs yet, on devices that are left alone.
        restart: most seconds from getting devices to the first step on them.

    Raises:
        ValueError: limit or minimum_devices below 1.
    """

    name: str
    rate: RateCurve
    limit: int
    epochs: int = 0
    stream: str = ""
    data: str = field(default="", kw_only=True)
    passing: float = field(default=1.0, kw_only=True)
    fed: float = field(default=math.inf, kw_only=True)
    mixed_kinds: bool = False
    arrival: float = 0.0
    deadline: float = math.inf
    soft: bool = False
    gang: int = 1
    minimum_devices: int = field(default=1, kw_only=True)
    priority: float = 0.0
    guaranteed: bool = False
    kind: str = ""
    tenant: str = ""
    batch: int | None = None
    batches: tuple[int, int] | None = None
    scaling: Scaling | None = None
    executor_rates: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    admitted: bool = False
    remaining: float = math.inf
    least: float = field(default=0.0, kw_only=True)
    trained: float = 0.0
    epoch: float = 0.0
    lane: int = 0
    attained: float = 0.0
    service_reset: float = 0.0
    since: float = 0.0
    ready: float = 0.0
    pace: float = 0.0
    held: int = 0
    restarts: int = 0
    last: tuple[int, ...] = ()
    restart: float = 0.0
    ahead: bool = False
    further: float = field(default=0.0, kw_only=True)
    service_level: ServiceLevel | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ValueError(f"job {self.name}: limit is {self.limit}; a job can use at least one device")
        if self.minimum_devices < 1:
            raise ValueError(f"job {self.name}: minimum_devices is {self.minimum_devices}; it must be 1 or more")

    def changed(self, **fields: Any) -> JobState:
        """Return the job with other values, which the caller vouches for: several times as fast as `replace`."""
        other: JobState = object.__new__(JobState)
        other.__dict__.update(self.__dict__)
        other.__dict__.update(fields)
        return other

    def remaining_at(self, now: float) -> float:
        """Samples left at `now`, by its pace."""
        if not (self.pace and now > self.ready):
            return self.remaining
        left = self.remaining - self.pace * (now - self.ready)
        return min(self.least, self.remaining) if self.least and left < self.least else left

    def trained_at(self, now: float) -> float:
        """Samples trained until `now`."""
        if not (self.pace and now > self.ready):
            return self.trained
        ahead = self.pace * (now - self.ready)
        return self.trained + (min(ahead, max(0.0, self.remaining - self.least)) if self.least else ahead)

    def attained_at(self, now: float) -> float:
        """Device-seconds that it has had until `now`: its service (Tiresias, NSDI'19, 3.1)."""
        return self.attained + self.held * (now - self.since)
