"""The counts of devices that each candidate could be given, laid end to end so that all are searched at once.

Rates count the samples of the job's stream, which all who read it together must keep up with, not those of them that
are the job's own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fleet.scheduling.model.arrays import Counts, Floats
from fleet.scheduling.model.state import JobState


class CandidateRates:
    """Counts and rates of every candidate, ascending in the count.

    Args:
        candidates: the jobs.
        most: devices there are; no larger count is a choice.
        literal: every count up to the job's limit is a choice, also one that a smaller count equals or beats.
    """

    def __init__(self, candidates: Sequence[JobState], most: int, literal: bool) -> None:
        counts, rates = zip(*(_rows_literally(candidates, most) if literal else _rows(candidates, most)))
        self._counts: Counts = np.concatenate(counts)
        self._rates: Floats = np.concatenate(rates)
        self._lengths = np.fromiter(map(len, counts), np.int64, len(counts))
        self._starts = np.cumsum(self._lengths) - self._lengths
        self.single: Floats = self._rates[self._starts]
        """r(1) of each candidate, samples/s."""

    def of(self, job: int) -> tuple[Counts, Floats]:
        """The counts of one candidate, and the rates at them."""
        row = slice(self._starts[job], self._starts[job] + self._lengths[job])
        return self._counts[row], self._rates[row]

    def closest(self, paces: Floats, most: int) -> tuple[Floats, Counts, Floats]:
        """For every candidate the count up to `most` whose rate is closest to its pace; the smaller count on ties.

        Returns:
            The gaps |r(m) - pace|, the counts m, and the rates r(m), each of shape (candidates,), as `paces` are.
        """
        gaps = np.where(self._counts <= most, np.abs(self._rates - np.repeat(paces, self._lengths)), np.inf)
        smallest = np.minimum.reduceat(gaps, self._starts)
        hits = np.flatnonzero(gaps == np.repeat(smallest, self._lengths))
        first: npt.NDArray[np.int64] = hits[np.searchsorted(hits, self._starts)]
        return smallest, self._counts[first], self._rates[first]

    def closest_of(self, job: int, pace: float, most: int) -> tuple[float, int, float]:
        """Choose for one candidate."""
        counts, rates = self.of(job)
        inside = int(np.searchsorted(counts, most, side="right"))
        gaps = np.abs(rates[:inside] - pace)
        best = int(np.argmin(gaps))
        return float(gaps[best]), int(counts[best]), float(rates[best])


def _rows(candidates: Sequence[JobState], most: int) -> list[tuple[Counts, Floats]]:
    rows = (job.rate.useful(job.limit if job.limit < most else most) for job in candidates)
    return [(counts, rates * job.passing) for job, (counts, rates) in zip(candidates, rows)]


def _rows_literally(candidates: Sequence[JobState], most: int) -> list[tuple[Counts, Floats]]:
    limits = [min(job.limit, most) for job in candidates]
    return [(np.arange(1, limit + 1), job.rate.rates(limit) * job.passing) for limit, job in zip(limits, candidates)]
