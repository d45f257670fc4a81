"""What can happen to a job, each as a pure function from its state before to its state after.

A run's ledger and a simulation's books change jobs by these alone, so that both give policies the same account of
service, work and moves. Times are seconds since the run began.
"""

from __future__ import annotations

import math

from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve


def promised(job: JobState) -> JobState:
    """The job's deadline is promised."""
    return job.changed(admitted=True)


def service_reset(job: JobState, now: float) -> JobState:
    """The service that a job has had until now no longer counts against it."""
    return job.changed(service_reset=job.attained_at(now))


def given(job: JobState, devices: int, now: float, ready: float, pace: float, again: bool) -> JobState:
    """It gets so many devices, on which it trains from `ready` on at `pace` samples/s.

    Args:
        again: it had devices before, so that this is a restart.
    """
    return job.changed(since=now, ready=ready, pace=pace, held=devices, restarts=job.restarts + again)


def repaced(job: JobState, remaining: float, since: float, pace: float) -> JobState:
    """It has so many samples left at `since`, and trains at another pace from then on."""
    return job.changed(remaining=remaining, trained=_trained(job, remaining), ready=since, pace=pace)


def rerated(job: JobState, rate: RateCurve, pace: float | None = None) -> JobState:
    """A job has other rates than was thought, and where it runs the pace that these give.

    Args:
        pace: there, where devices are unlike, so that the curve does not tell; samples/s.
    """
    there = float(rate(job.held)) if pace is None and job.held else pace or 0.0
    return job.changed(rate=rate, pace=there)


def rebatched(job: JobState, batch: int) -> JobState:
    """The job's steps have so many samples from now on."""
    return job.changed(batch=batch)


def reached(job: JobState, epochs: int, remaining: float, trained: float, now: float) -> JobState:
    """It stands after so many epochs and samples now, which may be before where it stood: then it is set back, and
    forgets the losses of the epochs that it trains again.
    """
    losses = job.losses if epochs >= job.epochs else job.losses[: max(0, len(job.losses) - (job.epochs - epochs))]
    return job.changed(epochs=epochs, losses=losses, remaining=remaining, trained=trained, ready=now)


def evaluated(job: JobState, loss: float) -> JobState:
    """The epoch that it ended had this loss."""
    return job.changed(losses=(*job.losses, loss))


def taken(job: JobState, devices: tuple[int, ...], now: float) -> JobState:
    """It loses these devices, all that it has; what it has trained stays."""
    left = max(0.0, job.remaining_at(now))
    return job.changed(
        remaining=left,
        trained=_trained(job, left),
        attained=job.attained_at(now),
        since=now,
        ready=now,
        pace=0.0,
        held=0,
        last=devices,
    )


def done(job: JobState, now: float) -> JobState:
    """It has trained all that it should: nothing remains, however much was expected, and it holds no devices."""
    return job.changed(remaining=0.0, attained=job.attained_at(now), since=now, ready=now, pace=0.0, held=0)


def _trained(job: JobState, remaining: float) -> float:
    """Samples trained once so many remain; where nobody knows how many there are, as many as before."""
    return job.trained + job.remaining - remaining if remaining < math.inf else job.trained
