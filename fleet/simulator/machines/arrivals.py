"""What a machine's costs are, and a job of a trace as policies see it when it arrives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.simulator.traces.job import TraceJob


@dataclass(frozen=True)
class Costs:
    """Seconds that a job does not train.

    Args:
        start: when it gets devices for the first time.
        restart: when it gets other devices, or some after it had none.
        promised: what policies are told that either takes at least, as a run does until it has measured more.

    Raises:
        ValueError: a number that is negative or not finite.
    """

    start: float = 0.0
    restart: float = 0.0
    promised: float = 0.0

    def __post_init__(self) -> None:
        for name in ("start", "restart", "promised"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} is {value} s; it must be 0 or more, and finite")

    @property
    def most(self) -> float:
        """What any getting of devices costs at most, as far as policies know."""
        return max(self.start, self.restart, self.promised)

    def delay(self, job: JobState) -> float:
        """Seconds from getting devices now to the job's first step on them."""
        return self.restart if job.attained else self.start


def arrived(
    job: TraceJob,
    curve: RateCurve,
    limit: int,
    samples: float,
    costs: Costs,
    guaranteed: int | None = None,
    **known: Any,
) -> JobState:
    """The job at its arrival on a machine.

    Args:
        job: as the trace tells of it.
        curve: its samples/s by devices there.
        limit: most devices that it can use there.
        samples: to train.
        costs: costs of moves, which promises must count.
        guaranteed: priority from which a job is a guaranteed one; None: none is.
        known: fields of `JobState` that this machine knows better than the trace.
    """
    fields: dict[str, Any] = {
        "stream": job.stream,
        "data": job.stream.rpartition("/")[0] or job.stream,
        "mixed_kinds": job.mixed,
        "soft": job.soft,
        "arrival": job.arrival,
        "deadline": math.inf if job.deadline is None else job.deadline,
        "gang": job.devices,
        "minimum_devices": job.minimum_devices or 1,
        "priority": job.priority,
        "guaranteed": guaranteed is not None and job.priority >= guaranteed,
        "kind": job.kind,
        "tenant": job.tenant,
        "service_level": job.service_level,
        "batch": job.batch_size,
        "remaining": samples,
        "further": job.further,
        "epoch": samples / job.epochs if job.epochs else 0.0,
        "since": job.arrival,
        "ready": job.arrival,
        "restart": costs.most,
    }
    return JobState(job.name, curve, limit, **{**fields, **known})
