"""How many deadlines a scheduler could meet at most that knows all arrivals from the beginning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix

from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.reservations.reservation import SpeedLevels

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Clairvoyant:
    """What the integer program found.

    Attributes:
        most: deadlines that nobody can exceed.
        met: those of the best solution that was found; with fluid devices, so that it may be out of reach.
        possible: jobs that can meet their deadline if they have all devices for themselves.
        jobs: all of them with a deadline.
    """

    most: int
    met: int
    possible: int
    jobs: int

    @property
    def ratio(self) -> float:
        """The bound as a share of the jobs."""
        return self.most / self.jobs if self.jobs else math.nan


def clairvoyant_bound(jobs: Sequence[JobState], devices: int, seconds: float = 120.0) -> Clairvoyant:
    """Maximise the number of deadlines that are met, all arrivals known.

        max sum_i z_i,  sum_{i,s} x_iks <= M L_k,  sum_{k,s} g_is x_iks >= samples_i z_i,  0 <= x_iks <= w_is L_k,

    where interval k of length L_k lies between two arrivals or deadlines, within the time of job i, and segment s of
    its least concave rate curve has w_is devices that bring g_is samples/s each. Devices may be parted and moves cost
    nothing, so no scheduler on this machine meets more.

    Args:
        jobs: with deadlines, at their arrival.
        devices: M.
        seconds: after which the best bound so far is taken.
    """
    levels = [SpeedLevels(job.rate, min(job.limit, devices)) for job in jobs]
    possible = [
        (job, speed)
        for job, speed in zip(jobs, levels)
        if job.remaining <= speed.top_rate * (job.deadline - job.arrival)
    ]
    if not possible:
        return Clairvoyant(0, 0, 0, len(jobs))
    program = _Program(possible)
    solved = milp(
        c=-program.chosen,
        constraints=[program.capacity(devices), program.work()],
        integrality=program.chosen,
        bounds=Bounds(np.zeros(len(program.chosen)), program.upper),
        options={"time_limit": seconds, "mip_rel_gap": 0.5 / len(possible)},
    )
    bound = -solved.mip_dual_bound if solved.mip_dual_bound is not None else float(len(possible))
    met = 0 if solved.x is None else round(float(solved.x @ program.chosen))
    return Clairvoyant(min(len(possible), math.floor(bound + 1e-6)), met, len(possible), len(jobs))


class _Program:
    """The columns x_iks, job by job, then the columns z_i.

    Attributes:
        chosen: 1 for the columns z_i, else 0.
        upper: the most that each column may be; device-seconds in thousands for x.
    """

    def __init__(self, jobs: Sequence[tuple[JobState, SpeedLevels]]) -> None:
        times = np.unique([time for job, _ in jobs for time in (job.arrival, job.deadline)])
        self._lengths: Floats = np.diff(times) / 1000
        self._row: list[npt.NDArray[np.int64]] = []
        self._interval: list[npt.NDArray[np.int64]] = []
        self._share: list[Floats] = []
        upper: list[Floats] = []
        for row, (job, speed) in enumerate(jobs):
            slopes, first = np.unique(-speed.marginal, return_index=True)
            widths = np.diff(np.append(first, len(speed.marginal)))
            begin, end = np.searchsorted(times, (job.arrival, job.deadline))
            intervals = np.repeat(np.arange(begin, end), len(slopes))
            self._row.append(np.full(len(intervals), row))
            self._interval.append(intervals)
            self._share.append(np.tile(-slopes, end - begin) * 1000 / job.remaining)
            upper.append(self._lengths[intervals] * np.tile(widths, end - begin))
        self._jobs = len(jobs)
        columns = sum(map(len, upper))
        self.chosen: Floats = np.concatenate((np.zeros(columns), np.ones(self._jobs)))
        self.upper: Floats = np.concatenate((*upper, np.ones(self._jobs)))

    def capacity(self, devices: int) -> LinearConstraint:
        """In no interval more than all devices."""
        intervals = np.concatenate(self._interval)
        shape = (len(self._lengths), len(self.chosen))
        matrix = csr_matrix((np.ones(len(intervals)), (intervals, np.arange(len(intervals)))), shape)
        return LinearConstraint(matrix, -np.inf, devices * self._lengths)

    def work(self) -> LinearConstraint:
        """A job that is chosen has all that it needs; counted as a share of it."""
        rows, shares = np.concatenate(self._row), np.concatenate(self._share)
        rows = np.concatenate((rows, np.arange(self._jobs)))
        shares = np.concatenate((shares, -np.ones(self._jobs)))
        matrix = csr_matrix((shares, (rows, np.arange(len(rows)))), (self._jobs, len(self.chosen)))
        return LinearConstraint(matrix, 0.0, np.inf)
