"""A few streams of shared samples at a time, each at a pace that suits its readers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fleet.scheduling.model.arrays import Counts
from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.policy import Policy
from fleet.scheduling.model.remaining_epochs import remaining_samples
from fleet.scheduling.model.state import State
from fleet.scheduling.placing.placement import place_changed
from fleet.scheduling.policies.checks import check_count, check_mean_epochs
from fleet.scheduling.sharing.bounds import expected_end
from fleet.scheduling.sharing.pacing import Market, PacedLane
from fleet.scheduling.sharing.water_filling import pour_out, water_fill

_LOOKS = 6  # at the lanes, until the end that water-filling sees
_WORTH = 4.0  # times what a move takes lie between two looks, at least
_ROUNDING = 1e-9
_HORIZON = 0.3  # of the time that is left: for so long lanes stay as they are formed


@dataclass(frozen=True)
class Sharing(Policy):
    """Keep at most `streams` lanes of jobs that read the same samples, each at its own pace.

    Water-filling says what a sample of each job is worth in devices (`Market`). Lanes are formed where the samples of
    all lanes are worth most. A lane goes on until it is worth more to form its jobs anew, with those that wait and
    the devices that are free, than moving them costs.

    Args:
        streams: lanes of each sharing class at the same time.
        mean_epochs: mean of a job's whole training; the policy then knows nothing else of how long jobs train. None: it
            knows what the driver knows.

    Raises:
        ValueError: a number that is not above 0.
    """

    name: ClassVar[str] = "sharing"
    shares_streams: ClassVar[bool] = True

    streams: int = 6
    mean_epochs: float | None = None

    def __post_init__(self) -> None:
        check_count("streams", self.streams)
        check_mean_epochs(self.mean_epochs)

    def plan(self, state: State) -> Plan:
        """The lanes that are formed anew; the others go on."""
        jobs, devices = state.jobs, state.capacity
        if not jobs or devices < 1:
            return Plan(others_go_on=True)
        samples = remaining_samples(jobs, state.time, self.mean_epochs)
        filling = pour_out(water_fill(jobs, samples, devices), jobs, samples, devices)
        market = Market(jobs, filling, devices)
        old = _lanes(state, jobs, market)
        broken, formed = self._formed(market, old, filling.seconds)
        lanes = [*(lane for lane in old if lane not in broken), *formed]
        wanted = {jobs[job].name: count for lane in formed for job, count in lane.counts.items()}
        going_on = {jobs[job].name for lane in lanes for job in lane.counts}
        stopped = tuple(name for name in state.running if name not in going_on)
        return Plan(
            place_changed(state, wanted, stopped),
            others_go_on=True,
            stopped=stopped,
            lanes={jobs[job].name: number for number, lane in enumerate(formed) for job in lane.counts},
            wake=self._wake(state, jobs, filling.seconds),
            bound=state.time + filling.seconds,
            end=state.time + expected_end(jobs, samples, _counts(lanes, len(jobs)), devices),
        )

    def _wake(self, state: State, jobs: Sequence[JobState], seconds: float) -> float:
        if len(jobs) == 1 and state.running:
            return math.inf
        return state.time + max(seconds / _LOOKS, _WORTH * max(job.restart for job in jobs), 1.0)

    def _formed(
        self, market: Market, old: Sequence[PacedLane], seconds: float
    ) -> tuple[list[PacedLane], list[PacedLane]]:
        """The lanes that are broken, the least worth for their devices first, and the lanes that are formed."""
        order = sorted(old, key=lambda lane: lane.value(market.worth) / lane.devices)
        best: tuple[float, int, list[PacedLane]] = (-math.inf, 0, [])
        for number in sorted({0, 1, 2, len(order)}):
            if number <= len(order):
                kept = order[number:]
                formed = self._new_lanes(market, kept)
                value = sum(lane.value(market.worth) for lane in kept)
                value += sum(_value(market, lane, seconds) for lane in formed)
                if value > best[0] + _ROUNDING * abs(value):
                    best = value, number, formed
        return order[: best[1]], best[2]

    def _new_lanes(self, market: Market, kept: Sequence[PacedLane]) -> list[PacedLane]:
        """The best lanes of the jobs that are not in those that are kept, on the devices that are left."""
        slots = dict.fromkeys((job.stream for job in market.jobs), self.streams)
        for lane in kept:
            slots[market.jobs[next(iter(lane.counts))].stream] -= 1
        staying = {job for lane in kept for job in lane.counts}
        others = [job for job in range(len(market.jobs)) if job not in staying]
        return market.lanes(others, market.limit - sum(lane.devices for lane in kept), slots)


def _value(market: Market, lane: PacedLane, seconds: float) -> float:
    """What a new lane is worth, but for the time in which its jobs move."""
    jobs = [market.jobs[job] for job in lane.counts]
    restart = max(job.restart if job.held or job.attained else 0.0 for job in jobs)
    return lane.value(market.worth) * max(0.0, 1 - restart / max(_HORIZON * seconds, 1.0))


def _counts(lanes: Sequence[PacedLane], jobs: int) -> Counts:
    """Devices of each job from now on."""
    counts = np.zeros(jobs, np.int64)
    for lane in lanes:
        counts[list(lane.counts)] = list(lane.counts.values())
    return counts


def _lanes(state: State, jobs: Sequence[JobState], market: Market) -> list[PacedLane]:
    """The lanes that run."""
    staying = state.staying if state.unavailable else state.running
    found: dict[tuple[object, ...], dict[int, int]] = {}
    for index, job in enumerate(jobs):
        devices = staying.get(job.name)
        if devices:
            key = (job.stream, job.lane) if job.stream else (job.name,)
            found.setdefault(key, {})[index] = len(devices)
    return [market.lane(counts) for counts in found.values()]
