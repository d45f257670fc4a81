"""What became of a trace under a policy: figures, the rounds, finish-time fairness."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fleet.scheduling.model.arrays import Counts, Flags, Floats
from fleet.scheduling.model.jobs import ServiceWindow
from fleet.scheduling.model.policy import Allocation, Plan
from fleet.scheduling.model.rates import RateCurve
from fleet.simulator.simulated_jobs import SimulatedBooks
from fleet.simulator.traces.trace import Trace


def finish_time_fairness(
    arrival: Floats, end: Floats, samples: Floats, curves: Sequence[RateCurve | None], limits: Counts, devices: int
) -> Floats:
    """rho = T_SH / T_ID of each job: above 1 it had been better off with its share of the cluster for itself alone.

    T_SH is the time from arrival to end. T_ID is what its samples take on M / N devices, at least one and at most its
    limit: M of the cluster, N the mean number of unfinished jobs while it was there.

    Args:
        arrival, end: seconds; `end` is NaN where a job was never done.
        samples: samples of each job.
        curves: rate curve of each job; None where it never arrived.
        limits: most devices of each job.
        devices: M.

    Returns:
        float64 of shape (jobs,), NaN where a job was never done.
    """
    fairness = np.full(len(arrival), np.nan)
    done = np.flatnonzero(~np.isnan(end))
    if len(done):
        shared = end[done] - arrival[done]
        others = np.maximum(1.0, _contention(arrival[done], end[done]))
        share = np.clip((devices / others).astype(np.int64), 1, np.maximum(1, limits[done]))
        alone = samples[done] / _rates([curves[row] for row in done.tolist()], share)
        fairness[done] = shared / alone
    return fairness


def _contention(arrival: Floats, end: Floats) -> Floats:
    """The mean number of these jobs that were there during each one's time; shape (jobs,)."""
    time = end - arrival
    present = _passed(end, arrival) - _passed(arrival, arrival) - _passed(end, end) + _passed(arrival, end)
    return np.divide(present, time, out=np.ones_like(time), where=time > 0)


def _passed(times: Floats, since: Floats) -> Floats:
    """For each of `times` the sum over all of `since` of the seconds that have passed since then."""
    ordered = np.sort(since)
    before = np.searchsorted(ordered, times, side="right")
    sums = np.concatenate(([0.0], np.cumsum(ordered)))
    passed: Floats = before * times - sums[before]
    return passed


def _rates(curves: Sequence[RateCurve | None], counts: Counts) -> Floats:
    """r(count) of each job, samples/s; a curve that many jobs have is looked up once."""
    rates = np.full(len(curves), np.nan)
    rows: dict[int, list[int]] = {}
    for row, curve in enumerate(curves):
        rows.setdefault(id(curve), []).append(row)
    for same in rows.values():
        curve = curves[same[0]]
        if curve is not None:
            rates[same] = curve.rates(int(counts[same].max()))[counts[same] - 1]
    return rates


HOUR = 3600.0


class Timeline:
    """The figures at each plan, in the order of time."""

    def __init__(self) -> None:
        self._seconds, self._times, self._used, self._waiting = array("d"), array("d"), array("l"), array("l")
        self._speedup = array("d")

    def planned(self, seconds: float) -> None:
        """A plan took so long, wall time."""
        self._seconds.append(seconds)

    def drawn(self, now: float, used: int, waiting: int, speedup: float = 0.0) -> None:
        """From now on so many devices are held, so many jobs wait, and all together are so much faster than on one."""
        self._times.append(now)
        self._used.append(used)
        self._waiting.append(waiting)
        self._speedup.append(speedup)

    @property
    def plan_seconds(self) -> Floats:
        """Wall seconds of each plan; shape (plans,)."""
        return np.array(self._seconds)

    @property
    def times(self) -> Floats:
        """When each plan was carried out, seconds since the first arrival; shape (plans,)."""
        return np.array(self._times)

    @property
    def used(self) -> npt.NDArray[np.int64]:
        """Devices held from then on; shape (plans,)."""
        return np.array(self._used)

    @property
    def waiting(self) -> npt.NDArray[np.int64]:
        """Jobs that hold no device from then on; shape (plans,)."""
        return np.array(self._waiting)

    @property
    def speedup(self) -> Floats:
        """Sum of r(m) / r(1) over the running jobs from then on; shape (plans,)."""
        return np.array(self._speedup)


@dataclass(frozen=True, eq=False)
class SimulationOutcome:
    """What became of each job; arrays of shape (jobs,) in the order of the trace, NaN where it never came to that.

    Attributes:
        policy: its name.
        devices: number of devices of the cluster.
        names: names of the jobs.
        arrival, begin, end: seconds since the first arrival: when it came, first trained, and was done.
        deadline: infinite where there is none.
        service: device-seconds.
        admitted: whether its deadline was promised; of a policy that promises nothing, whether it was not dropped.
        dropped: whether the policy refused it.
        restarts: how often it began anew on other devices.
        fairness: rho, see `finish_time_fairness`.
        held: seconds that jobs held each device; shape (devices,).
        alone: seconds that one device would have taken for all that was trained.
        timeline: the figures at each plan.
        windows: what became of promised service levels, in the order of time.
        seconds: wall time of the simulation, with the planning.
    """

    policy: str
    devices: int
    names: tuple[str, ...]
    arrival: Floats
    begin: Floats
    end: Floats
    deadline: Floats
    service: Floats
    admitted: Flags
    dropped: Flags
    restarts: Counts
    fairness: Floats
    held: Floats
    alone: float
    timeline: Timeline
    windows: tuple[ServiceWindow, ...]
    seconds: float

    @classmethod
    def of(
        cls, policy: str, trace: Trace, books: SimulatedBooks, timeline: Timeline, seconds: float
    ) -> SimulationOutcome:
        """What the books say at the end."""
        jobs = trace.jobs
        admitted = books.admitted if books.admitted.any() else ~books.dropped
        deadline = np.where(np.isnan(jobs.deadline), math.inf, jobs.deadline)
        size = books.cluster.size
        fairness = finish_time_fairness(jobs.arrival, books.end, books.samples, books.curve, books.limit, size)
        return cls(
            policy,
            size,
            jobs.name,
            jobs.arrival,
            books.begin,
            books.end,
            deadline,
            books.service,
            admitted,
            books.dropped,
            books.restarts,
            fairness,
            np.array(books.held),
            books.alone,
            timeline,
            tuple(books.windows),
            seconds,
        )

    @property
    def finished(self) -> Flags:
        """Which jobs were done."""
        return ~np.isnan(self.end)

    @property
    def in_time(self) -> Flags:
        """Which jobs with a deadline were done by then."""
        ends: Flags = np.nan_to_num(self.end, nan=math.inf) <= self.deadline
        return ends & np.isfinite(self.deadline)

    @property
    def jct(self) -> Floats:
        """Job completion times of those that were done: seconds from arrival to end."""
        done = self.finished
        times: Floats = self.end[done] - self.arrival[done]
        return times

    @property
    def makespan(self) -> float:
        """Seconds from the first arrival to the last end."""
        return float(np.nanmax(self.end)) if self.finished.any() else 0.0

    @property
    def deadline_ratio(self) -> float:
        """Share of the jobs with a deadline that met it (ElasticFlow, ASPLOS'23, 6.1); NaN if none has one."""
        having = int(np.isfinite(self.deadline).sum())
        return float(self.in_time.sum()) / having if having else math.nan

    @property
    def late_admitted(self) -> int:
        """Jobs that were admitted and missed their deadline."""
        return int((self.admitted & np.isfinite(self.deadline) & ~self.in_time).sum())

    @property
    def broken(self) -> tuple[ServiceWindow, ...]:
        """The windows in which jobs had less than they were promised."""
        return tuple(window for window in self.windows if window.broken)

    @property
    def utilisation(self) -> float:
        """Share of all device-seconds until the makespan that were held."""
        whole = self.makespan * self.devices
        return float(np.nansum(self.service)) / whole if whole else 0.0

    @property
    def cluster_efficiency(self) -> float:
        """CE (ElasticFlow, ASPLOS'23, Eq. 8) in the mean until the makespan.

        Eq. 8 adds up, over the M devices, the current throughput of the device's job per device by that on one device,
        and divides by M: the sum of r(m) / r(1) over the running jobs by M. Moves train nothing and count as 0.
        """
        whole = self.makespan * self.devices
        return self.alone / whole if whole else 0.0

    @property
    def sjs_efficiency(self) -> float:
        """Scheduled job scaling efficiency: Opt_Sch_Time / Act_Sch_Time (Saxena et al., 2020, IV-C); 0 if none ran.

        What one device would have taken for all that was trained, by the device-seconds that it took.
        """
        held = float(self.held.sum())
        return self.alone / held if held else 0.0

    @property
    def queue(self) -> float:
        """Jobs that hold no device, in the mean until the makespan."""
        times, span = np.minimum(self.timeline.times, self.makespan), self.makespan
        return float(self.timeline.waiting @ np.diff(times, append=span)) / span if span else 0.0

    @property
    def idle(self) -> Floats:
        """Seconds until the makespan that each device waited for a job; shape (devices,)."""
        waited: Floats = np.maximum(0.0, self.makespan - self.held)
        return waited

    def summary(self) -> dict[str, Any]:
        """The figures, for JSON; null where there is nothing to tell."""
        fairness = self.fairness[~np.isnan(self.fairness)]
        jct, plans, waits = self.jct, self.timeline.plan_seconds, (self.begin - self.arrival)[~np.isnan(self.begin)]
        return {
            "policy": self.policy,
            "jobs": len(self.names),
            "admitted": int(self.admitted.sum()),
            "late_admitted": self.late_admitted,
            "deadline_ratio": _told(self.deadline_ratio),
            "avg_jct": _mean(jct),
            "p99_jct": _percentile(jct, 99),
            "makespan": self.makespan,
            "finished": int(self.finished.sum()),
            "dropped": int(self.dropped.sum()),
            "drop_ratio": float(self.dropped.mean()) if len(self.names) else 0.0,
            "restarts": int(self.restarts.sum()),
            "restarts_per_job": float(self.restarts.mean()) if len(self.names) else 0.0,
            "gpu_hours": float(np.nansum(self.service)) / HOUR,
            "utilisation": self.utilisation,
            "cluster_efficiency": self.cluster_efficiency,
            "sjs_efficiency": self.sjs_efficiency,
            "median_fairness": _percentile(fairness, 50),
            "max_fairness": _percentile(fairness, 100),
            "avg_idle": float(self.idle.mean()),
            "max_idle": float(self.idle.max()),
            "avg_wait": _mean(waits),
            "avg_queue": self.queue,
            "service_windows": len(self.windows),
            "broken_service_windows": len(self.broken),
            "plans": len(plans),
            "p99_plan_seconds": _percentile(plans, 99),
            "seconds": self.seconds,
        }


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def _percentile(values: Floats, rank: float) -> float | None:
    return float(np.percentile(values, rank)) if len(values) else None


def _told(value: float) -> float | None:
    return None if math.isnan(value) else value


@dataclass(frozen=True)
class PlannedRound:
    """The time between two allocations, while at least one of the jobs trains.

    Attributes:
        allocation: job -> devices.
        start, end: seconds since the run began.
        bound, expected: from the plan with which it began, see `Plan.bound` and `Plan.end`; None: not computed.
        worth, worth_bound: likewise, as `Plan` has them.
        lent: likewise, trainers that prepare samples; None: none ever may.
    """

    allocation: Allocation
    start: float
    end: float = math.inf
    bound: float | None = None
    expected: float | None = None
    worth: float | None = None
    worth_bound: float | None = None
    lent: int | None = None

    @property
    def gap(self) -> float | None:
        """Return `Plan.gap`, with both ends counted from the run's begin."""
        return Plan(bound=self.bound, end=self.expected).gap


class RoundObserver:
    """Watches a simulation: a round begins where somebody starts, and ends where the next one does or nobody trains."""

    def __init__(self) -> None:
        self.dropped: dict[str, str] = {}
        """Job -> why the policy dropped it."""
        self._rounds: list[PlannedRound] = []

    def __call__(self, now: float, plan: Plan, running: Allocation) -> None:
        """A plan was carried out, and since then these jobs run."""
        self.dropped |= plan.dropped
        before = self._rounds[-1].allocation if self._rounds and self._rounds[-1].end == math.inf else {}
        starting = any(before.get(job) != devices for job, devices in running.items())
        if before and (starting or not running):
            self._rounds[-1] = replace(self._rounds[-1], end=now)
        if starting:
            known = plan.bound, plan.end, plan.worth, plan.worth_bound, plan.lent
            self._rounds.append(PlannedRound(dict(running), now, math.inf, *known))

    def until(self, ends: Mapping[str, float]) -> tuple[PlannedRound, ...]:
        """The rounds in order, if each job was done when `ends` says, NaN: never; none that ended where it began."""
        ended = (replace(one, end=min(one.end, _last(one.allocation, ends))) for one in self._rounds)
        return tuple(one for one in ended if one.end > one.start)


def _last(jobs: Allocation, ends: Mapping[str, float]) -> float:
    return max(math.inf if math.isnan(ends[job]) else ends[job] for job in jobs)
