"""Goodput on several kinds of device, as far as a job knows it (Sia, SOSP'23, 3.1)."""

from __future__ import annotations

from typing import Protocol, cast, runtime_checkable

from fleet.scheduling.model.arrays import Floats
from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.rates import RateCurve

Shapes = tuple[tuple[int, int], ...]
"""Configurations: the nodes of each, and its devices on all of them together."""


@runtime_checkable
class KindGoodput(Protocol):
    """What a policy may ask of a job whose step times and gradient noise are known; `JobState.scaling` of such a job.

    Attributes:
        application: jobs with the same one train the same network on the same data, as a rule equally long.
        tried: the most devices on which its steps were measured, on any kind; 0: it has not run yet.
        most: the most devices that have a sample each of its largest batch.
        penalty: seconds that a restart is taken to cost.
    """

    application: str
    tried: int
    most: int
    penalty: float

    def rate(self, devices: int, batch: int | None = None, nodes: int = 1) -> float:
        """As `Scaling.rate`, on the kind that the job is at home on."""
        ...

    def worker_rate(self, kind: str) -> float:
        """As `Scaling.worker_rate`."""
        ...

    def curve_on(self, kind: str) -> RateCurve:
        """Goodput on 1, 2, ... devices of that kind at the job's own batch size, samples/s of its first one."""
        ...

    def own_rate(self, kind: str, devices: int) -> float:
        """Samples/s on so many devices of that kind at the job's own batch size, however well each is used."""
        ...

    def goodputs(self, kind: str, shapes: Shapes) -> Floats | None:
        """Goodput, samples/s of the first batch size, in each configuration with the best batch for it.

        Returns:
            float64 of shape (configurations,), 0 where no batch fits; None: nothing of that kind is known.
        """
        ...

    def ratio(self, kind: str, other: str) -> float:
        """How many times as fast one device of `kind` is as one of `other`, at the largest batch that fits."""
        ...


def kind_goodput(job: JobState) -> KindGoodput | None:
    """What is known of the job's goodput by kind; None: it has none. Many times as fast as `isinstance`."""
    return cast(KindGoodput, job.scaling) if hasattr(job.scaling, "goodputs") else None
