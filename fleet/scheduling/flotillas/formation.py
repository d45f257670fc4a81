"""Which jobs form a flotilla, and how many devices each needs (FLEET, MLSys'20, Algorithm 2 and Eq. 3)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fleet.scheduling.flotillas.choices import CandidateRates
from fleet.scheduling.flotillas.filling import fill
from fleet.scheduling.model.arrays import Floats
from fleet.scheduling.model.state import JobState


def form_flotilla(
    candidates: Sequence[JobState],
    devices: int,
    delta: float | str,
    literal: bool = False,
    others: Iterable[JobState] = (),
) -> dict[str, int]:
    """Algorithm 2: choose jobs that keep the pace of the fastest, and balance the devices between them.

    The pace is r_fast, the largest r(1). Jobs join in the order of |r_i(m) - r_fast| (Eq. 3), at the count m that makes
    it smallest, while it is at most `delta` and m devices are left. The devices that remain go, one at a time, to the
    slowest member. Where one of the `others` has r_fast, the closest candidate joins in any case.

    Printed so, a job goes on receiving devices that make it slower. Therefore, unless `literal`:
      * only useful counts are chosen (`RateCurve.useful`): none past the peak, none on a plateau but the first;
      * devices that remain first admit further jobs on one device each, though these do not keep the pace, see `fill`:
        they do more there than where scaling is below linear (Principle 2);
      * then they go to the slowest member that gains from them, and stay idle if none does;
      * each data set has a pace of its own, as samples of unlike data say nothing about each other's. Where there are
        several, gaps and slowness are counted in parts of the pace, and the fastest of each data set comes first.

    Ties go to the smaller count, then to the higher rate, then to spec order.

    Args:
        candidates: unfinished jobs, in spec order.
        devices: M, their number.
        delta: how close paces must be: samples/s, or text such as "12%", of r_fast.
        literal: Algorithm 2 as printed, but for each job's limit.
        others: jobs that train already, whose pace the new ones should keep as well.

    Returns:
        Job -> count of devices, in the order of joining; empty without candidates or devices.
    """
    if not candidates or devices < 1:
        return {}
    choices = CandidateRates(candidates, devices, literal)
    paces = _Paces.of(candidates, choices, others, literal)
    allowed = [closeness(delta, pace) for pace in paces.samples.tolist()]
    counts, slow = _members(choices, devices, paces, allowed)
    if not literal:
        counts |= fill(counts, slow, candidates, choices, paces.units, devices - sum(counts.values()))
    _top_up(counts, choices, paces.units, devices - sum(counts.values()))
    return {candidates[job].name: count for job, count in counts.items()}


@dataclass(frozen=True)
class _Paces:
    """What candidates should keep up with.

    Attributes:
        samples: the pace of the jobs with each candidate's data, samples/s.
        units: what its gaps and rates are counted in: that pace, or samples/s where there is one pace for all.
        fastest: candidates that have their data's pace, one of each.
    """

    samples: Floats
    units: Floats
    fastest: tuple[int, ...]

    @classmethod
    def of(
        cls, candidates: Sequence[JobState], choices: CandidateRates, others: Iterable[JobState], literal: bool
    ) -> _Paces:
        """One for each data set; for all jobs together if they have one, or the algorithm is as printed."""
        data = ["" if literal else job.data for job in candidates]
        paces: dict[str, float] = {}
        for job in others:
            own, single = "" if literal else job.data, job.rate.single * job.passing
            if single > paces.get(own, 0.0):
                paces[own] = single
        fastest: dict[str, int] = {}
        for index in np.argsort(-choices.single, kind="stable").tolist():
            single, own = float(choices.single[index]), data[index]
            if own not in fastest and single >= paces.get(own, 0.0):
                fastest[own], paces[own] = index, single
        samples = np.array([paces[own] for own in data])
        units = samples if len(paces) > 1 else np.ones(len(samples))
        return cls(samples, units, tuple(fastest.values()))


def check_delta(delta: float | str) -> None:
    """Raises ValueError unless `delta` is what `form_flotilla` takes."""
    closeness(delta, 1.0)


def closeness(delta: float | str, fastest: float) -> float:
    """delta in samples/s, where the fastest job trains `fastest` samples/s on one device."""
    number, share = delta, 1.0
    if isinstance(delta, str):
        text = delta.strip()
        number, share = text[:-1] if text.endswith("%") else "", fastest / 100
    try:
        value = math.nan if isinstance(number, bool) else float(number)
    except (TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(
            f"delta is {delta!r}; it must be a number of samples/s, or text such as '12%' (of the fastest job's rate); "
            "0 or more either way"
        )
    return value * share


def _members(
    choices: CandidateRates, devices: int, paces: _Paces, allowed: Sequence[float]
) -> tuple[dict[int, int], list[int]]:
    """Lines 1-11: candidate (its index) -> count of devices, in the order of joining; and who cannot keep the pace.

    The best count of a candidate can only get worse while devices are given away. So a heap of the best known counts,
    each looked at again only once it no longer fits, finds what a search over all candidates would find.
    """
    members: dict[int, int] = {}
    slow: list[int] = []
    left = devices
    heap = _closest(choices, paces, left)
    while left and heap:
        gap, _, job, count = heapq.heappop(heap)
        unit = float(paces.units[job])
        if count > left:
            gap, count, rate = choices.closest_of(job, float(paces.samples[job]), left)
            heapq.heappush(heap, (gap / unit, -rate, job, count))
        elif members and gap > allowed[job] / unit:
            slow.append(job)
        else:
            members[job] = count
            left -= count
    return members, slow


def _closest(choices: CandidateRates, paces: _Paces, left: int) -> list[tuple[float, float, int, int]]:
    """A heap of (gap, minus the rate, candidate, count); D_fast of each data set comes first, if it is a candidate."""
    gaps, counts, rates = choices.closest(paces.samples, left)
    gaps /= paces.units
    for fastest in paces.fastest:
        gaps[fastest], counts[fastest], rates[fastest] = -1.0, 1, paces.samples[fastest]
    entries = list(zip(gaps.tolist(), (-rates).tolist(), range(len(gaps)), counts.tolist()))
    heapq.heapify(entries)
    return entries


def _top_up(members: dict[int, int], choices: CandidateRates, units: Floats, left: int) -> None:
    """Lines 12-16: the next choice of the slowest member, again and again, as far as the devices go."""
    rows = {job: choices.of(job) for job in members} if left else {}
    steps = {job: int(np.searchsorted(counts, members[job])) for job, (counts, _) in rows.items()}
    heap = [(float(rates[steps[job]] / units[job]), job) for job, (_, rates) in rows.items()]
    heapq.heapify(heap)
    while left and heap:
        _, slowest = heapq.heappop(heap)
        counts, rates = rows[slowest]
        step = steps[slowest] + 1
        if step == len(counts) or counts[step] - members[slowest] > left:
            continue  # at its limit or peak, or nothing that is left would make it faster
        left -= int(counts[step]) - members[slowest]
        members[slowest] = int(counts[step])
        steps[slowest] = step
        heapq.heappush(heap, (float(rates[step] / units[slowest]), slowest))
