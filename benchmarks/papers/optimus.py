"""Optimus: each further device to the job whose end it brings nearest (Peng et al., EuroSys'18)."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import ClassVar

from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, Policy, State, check_mean_epochs, check_period
from fleet.scheduling.model.remaining_epochs import remaining_samples
from fleet.scheduling.placing.placement import placed_or_staying


@dataclass(frozen=True)
class Optimus(Policy):
    """At each interval: one device for each job, the shortest first, then more by marginal gain.

    With Q samples left and the rate r(m) on m devices, d more devices bring a job's end nearer by

        (Q / r(m) - Q / r(m + d)) / d    seconds for each of them (4.1, Eq. 9);

    the job for which that is most gets them, until none is left or nobody gains. d is the step to the next count that
    is faster at all. Optimus counts workers and parameter servers; here devices reduce among themselves. How much is
    left is fitted to the loss curve where nobody says (3.1). Who keeps his number stays where he is.

    Args:
        interval: seconds between two plans; the paper has 10 minutes.
        mean_epochs: as for `remaining_samples`: None: what jobs say is left is believed.

    Raises:
        ValueError: a parameter out of its range.
    """

    name: ClassVar[str] = "optimus"

    interval: float = 600.0
    mean_epochs: float | None = None

    def __post_init__(self) -> None:
        check_period("interval", self.interval)
        check_mean_epochs(self.mean_epochs)

    def plan(self, state: State) -> Plan:
        """Counts, then devices."""
        if not state.by_name:
            return Plan()
        counts = _counts(list(state.jobs), len(state.available), state.time, self.mean_epochs)
        wake = self.trigger.next_end(state.time)
        return Plan(placed_or_staying(counts, state), wake=wake)


def _counts(jobs: list[JobState], devices: int, now: float, mean_epochs: float | None) -> dict[str, int]:
    left = dict(zip((job.name for job in jobs), remaining_samples(jobs, now, mean_epochs).tolist()))
    shortest = sorted(jobs, key=lambda job: (left[job.name] / job.rate(1), job.arrival, job.name))
    counts = {job.name: 1 for job in shortest[:devices]}
    free = devices - len(counts)
    heap = [gain for order, job in enumerate(shortest) if job.name in counts and (gain := _gain(job, left, 1, order))]
    heapq.heapify(heap)
    while heap and free:
        _, order, step = heapq.heappop(heap)
        job = shortest[order]
        if step > free:
            continue
        counts[job.name] += step
        free -= step
        gain = _gain(job, left, counts[job.name], order)
        if gain:
            heapq.heappush(heap, gain)
    return counts


def _gain(job: JobState, left: dict[str, float], count: int, order: int) -> tuple[float, int, int] | None:
    """Minus the seconds that each of the next devices saves, the job's place in line, and how many they are."""
    useful, rates = job.rate.useful(job.limit)
    place = int(useful.searchsorted(count, side="right"))
    if place == len(useful):
        return None
    step = int(useful[place]) - count
    samples = left[job.name]
    return -(samples / job.rate(count) - samples / float(rates[place])) / step, order, step
