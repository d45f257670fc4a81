"""Every job gets the share of the machine with which all end at once; nothing is shared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fleet.scheduling.model.arrays import Counts, Flags, Floats
from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.policy import Policy
from fleet.scheduling.model.remaining_epochs import remaining_samples
from fleet.scheduling.model.state import State
from fleet.scheduling.placing.placement import place_changed
from fleet.scheduling.policies.checks import check_mean_epochs
from fleet.scheduling.sharing.bounds import expected_end
from fleet.scheduling.sharing.water_filling import WaterLevel, pour_out, water_fill

_WORTH = 4.0  # a move is worth it if the job trains so many times as long afterwards as moving takes
_TOLERANCE = 0.25  # part of its devices that a job may miss
_LOOKS = 12  # at the allocation, until the end that water-filling sees


@dataclass(frozen=True)
class Malleable(Policy):
    """Give each job one of the two counts of devices between which its share by water-filling lies.

    The shares are those with which all unfinished jobs end at the same time, and no plan ends earlier
    (`water_fill`). Shares are seldom whole. A job keeps its devices while its share lies between the corners of its
    rate curve that enclose its count; it moves when it has fallen so far behind, or so far ahead, that it does not.
    Devices that are left go to the jobs with the largest part of a further step; devices of jobs that are ahead go to
    jobs that are behind.

    Args:
        mean_epochs: mean of a job's whole training; the policy then knows nothing else of how long jobs train. None: it
            knows what the driver knows.

    Raises:
        ValueError: a number of epochs that is not above 0.
    """

    name: ClassVar[str] = "malleable"

    mean_epochs: float | None = None

    def __post_init__(self) -> None:
        check_mean_epochs(self.mean_epochs)

    def plan(self, state: State) -> Plan:
        """The jobs that start or move; the others go on."""
        jobs, devices = state.jobs, state.capacity
        if not jobs or devices < 1:
            return Plan(others_go_on=True)
        samples = remaining_samples(jobs, state.time, self.mean_epochs)
        filling = pour_out(water_fill(jobs, samples, devices), jobs, samples, devices)
        staying = state.staying if state.unavailable else state.running
        held = np.fromiter((len(staying.get(job.name, ())) for job in jobs), np.int64, len(jobs))
        counts = _counts(jobs, samples, filling, held, devices)
        changed = np.flatnonzero(counts != held).tolist()
        lost = [job.name for job, count in zip(jobs, counts.tolist()) if not count and job.name in state.running]
        wake = state.time + max(filling.seconds / _LOOKS, _WORTH * max(job.restart for job in jobs), 1.0)
        return Plan(
            place_changed(state, {jobs[index].name: int(counts[index]) for index in changed if counts[index]}, lost),
            others_go_on=True,
            stopped=tuple(lost),
            wake=wake if len(jobs) > 1 or changed else math.inf,
            bound=state.time + filling.seconds,
            end=state.time + expected_end(jobs, samples, counts, devices),
        )


def _counts(jobs: Sequence[JobState], samples: Floats, filling: WaterLevel, held: Counts, devices: int) -> Counts:
    """Devices of each job from now on."""
    counts = held.copy()
    left = devices - int(held.sum())
    movable = _movable(jobs, samples, held)
    behind = _behind(filling, held, movable)
    needed = int((filling.low - held)[behind].sum())
    if needed > left:
        left += _release(counts, _ahead(filling, held, movable), filling, needed - left)
    short = np.flatnonzero((counts < filling.high) & (counts <= held) & movable)
    for job in short[np.argsort((counts - filling.shares)[short], kind="stable")].tolist():
        wanted = max(counts[job] + 1, round(float(filling.shares[job])), filling.low[job])
        step = min(left, int(wanted - counts[job]))
        if step >= _TOLERANCE * counts[job]:
            counts[job] += step
            left -= step
        if not left:
            break
    return counts


def _behind(filling: WaterLevel, held: Counts, movable: Flags) -> Counts:
    """Jobs whose share is so much above what they hold that they should move."""
    missing = filling.shares - held
    return np.flatnonzero((held < filling.low) & (missing >= _TOLERANCE * held) & movable)


def _movable(jobs: Sequence[JobState], samples: Floats, held: Counts) -> Flags:
    """The jobs that wait, and those that train for long enough yet to be worth moving."""
    lost = np.array([job.restart for job in jobs]) * np.array([job.pace for job in jobs])
    movable: Flags = (held == 0) | (samples > _WORTH * lost)
    return movable


def _ahead(filling: WaterLevel, held: Counts, movable: Flags) -> Iterable[int]:
    """Jobs with more devices than their share, those that are farthest ahead first."""
    excess = np.where(held > 0, (held - filling.shares) / np.maximum(held, 1), 0.0)
    ahead = np.flatnonzero((held > filling.low) & (held > filling.shares) & movable)
    order: list[int] = ahead[np.argsort(-excess[ahead], kind="stable")].tolist()
    return order


def _release(counts: Counts, ahead: Iterable[int], filling: WaterLevel, needed: int) -> int:
    """Let jobs that are ahead step down until so many devices are free; return how many are."""
    released = 0
    for job in ahead:
        if released >= needed:
            break
        lower = filling.high[job] if counts[job] > filling.high[job] else filling.low[job]
        released += int(counts[job] - lower)
        counts[job] = lower
    return released
