"""Flotillas: which jobs train together, each on how many devices (FLEET, MLSys'20, Algorithm 2)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleet.scheduling.model.arrays import Counts, Floats
from fleet.scheduling.model.jobs import JobState


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


FILLING_KEEPS = 0.9  # a job that fills may cost the flotilla a tenth of its useful work; devices idle otherwise
_Key = tuple[float, int, int]  # the rate before a step, in its job's unit; the job; the step


def fill(
    members: Mapping[int, int],
    others: Iterable[int],
    candidates: Sequence[JobState],
    choices: CandidateRates,
    units: Floats,
    left: int,
) -> dict[int, int]:
    """Jobs that join on one device each: the fastest first, as Algorithm 2 itself begins (line 2).

    Devices go to the slowest member afterwards (lines 12-16), so a job that fills is raised before any other. It joins
    if the flotilla then still does `FILLING_KEEPS` of the useful work that it does without that job: each second, the
    single-device seconds of training that its members get through. The members of a stream go at the pace p of their
    slowest, so a stream does p * sum_i 1 / r_i(1). Where a job does not join, slower ones of its stream do not either.

    Args:
        members: candidate (its index) -> count of devices.
        others: candidates that may join.
        candidates: all of them.
        choices: their counts and rates.
        units: what the rates of each candidate are counted in.
        left: devices that no member has.

    Returns:
        Candidate -> 1, in the order of joining.
    """
    joined: dict[int, int] = {}
    refused: set[str] = set()
    raised = _Raised(members, candidates, choices, units, left)
    for job in sorted(others, key=lambda job: (-float(choices.single[job] / units[job]), job)):
        if len(joined) == left:
            break
        stream = candidates[job].stream
        if stream not in refused:
            if raised.joins(job):
                joined[job] = 1
            else:
                refused.add(stream)
    return joined


class _Raised:
    """A flotilla whose slowest member has been given the next choice of devices, again and again (lines 12-16).

    Those steps are taken in the order of the rate before each, so that a job that joins takes the last of them away.
    The first step for which devices are missing is the last that is looked at.
    """

    def __init__(
        self,
        members: Mapping[int, int],
        candidates: Sequence[JobState],
        choices: CandidateRates,
        units: Floats,
        left: int,
    ) -> None:
        self._choices, self._units, self._free = choices, units, left
        self._work = _UsefulWork(candidates, choices)
        self._first = {job: int(choices.of(job)[0].searchsorted(count)) for job, count in members.items()}
        self._step = dict(self._first)
        self._missing: _Key | None = None  # the first step that is not taken
        self._taken: list[_Key] = []  # a heap of minus the key of each member's last step, and of outdated ones
        self._raise_all()
        for job, step in self._step.items():
            self._note(job)
            self._work.enters(job, step)

    def joins(self, job: int) -> bool:
        """Let a job join on one device, unless that costs too much work; whether it does."""
        missing, free, lowered = self._missing, self._free, dict[int, int]()
        self._first[job] = self._step[job] = 0
        self._free -= 1
        self._raise(job)
        self._make_room(lowered)
        changes = {other: self._step[other] for other in lowered if other != job}
        if self._work.bears(job, self._step[job], changes):
            return True
        self._missing, self._free = missing, free
        del self._first[job], self._step[job]
        for other in changes:
            self._step[other] = lowered[other]
            self._note(other)
        return False

    def _key(self, job: int, step: int) -> _Key:
        return float(self._choices.of(job)[1][step] / self._units[job]), job, step

    def _cost(self, job: int, step: int) -> int:
        """Devices that a member needs more for the choice after that one."""
        counts = self._choices.of(job)[0]
        return int(counts[step + 1] - counts[step])

    def _ends(self, job: int, step: int) -> bool:
        return step + 1 == len(self._choices.of(job)[0])

    def _raise_all(self) -> None:
        heap = [self._key(job, step) for job, step in self._step.items() if not self._ends(job, step)]
        heapq.heapify(heap)
        while heap:
            key = heapq.heappop(heap)
            _, job, step = key
            if self._cost(job, step) > self._free:
                self._missing = key
                break
            self._free -= self._cost(job, step)
            self._step[job] = step + 1
            if not self._ends(job, step + 1):
                heapq.heappush(heap, self._key(job, step + 1))

    def _raise(self, job: int) -> None:
        """Let a new member take its steps before the first that is not taken, whether or not there are devices."""
        step = 0
        while not self._ends(job, step) and (self._missing is None or self._key(job, step) < self._missing):
            self._free -= self._cost(job, step)
            step += 1
        self._step[job] = step
        self._note(job)

    def _note(self, job: int) -> None:
        step = self._step[job] - 1
        if step >= self._first[job]:
            rate, _, _ = self._key(job, step)
            heapq.heappush(self._taken, (-rate, -job, -step))

    def _make_room(self, lowered: dict[int, int]) -> None:
        """Take the last steps away while too many devices are taken; `lowered`: where each stood whom that concerns."""
        while self._free < 0:
            _, minus_job, minus_step = heapq.heappop(self._taken)
            job, step = -minus_job, -minus_step
            if self._step.get(job) != step + 1:
                continue  # outdated
            lowered.setdefault(job, step + 1)
            self._step[job] = step
            self._free += self._cost(job, step)
            self._missing = self._key(job, step)
            self._note(job)


class _UsefulWork:
    """What the members get done, in devices: sum over streams of p * sum_i 1 / r_i(1)."""

    def __init__(self, candidates: Sequence[JobState], choices: CandidateRates) -> None:
        self._candidates, self._choices = candidates, choices
        self._streams: dict[str, tuple[float, float]] = {}  # pace, sum of 1 / r(1)
        self._total = 0.0

    def enters(self, job: int, step: int) -> None:
        """A job becomes a member."""
        self._keep(self._with(job, step, {}))

    def bears(self, job: int, step: int, lowered: Mapping[int, int]) -> bool:
        """Let a job become a member, and others slower, if enough work is left; whether it is."""
        streams = self._with(job, step, lowered)
        enough = self._total + self._gain(streams) >= FILLING_KEEPS * self._total
        if enough:
            self._keep(streams)
        return enough

    def _with(self, job: int, step: int, lowered: Mapping[int, int]) -> dict[str, tuple[float, float]]:
        """The streams that this changes, as they are then."""
        changed: dict[str, tuple[float, float]] = {}
        for other, at in lowered.items():
            stream = self._candidates[other].stream
            pace, weight = changed.get(stream) or self._streams[stream]
            changed[stream] = min(pace, self._rate(other, at)), weight
        stream, rate = self._candidates[job].stream, self._rate(job, step)
        pace, weight = changed.get(stream) or self._streams.get(stream, (rate, 0.0))
        changed[stream] = min(pace, rate), weight + 1 / float(self._choices.single[job])
        return changed

    def _gain(self, streams: Mapping[str, tuple[float, float]]) -> float:
        before = (self._streams.get(stream, (0.0, 0.0)) for stream in streams)
        return sum(pace * weight for pace, weight in streams.values()) - sum(pace * weight for pace, weight in before)

    def _keep(self, streams: dict[str, tuple[float, float]]) -> None:
        self._total += self._gain(streams)
        self._streams |= streams

    def _rate(self, job: int, step: int) -> float:
        return float(self._choices.of(job)[1][step])


def useful_work(jobs: Sequence[JobState], counts: Mapping[str, int]) -> float:
    """Single-device seconds of training that jobs on so many devices get through each second.

    The members of a stream go at the pace p of their slowest, so a stream does p * sum_i 1 / r_i(1).
    """
    streams: dict[str, tuple[float, float]] = {}  # pace, sum of 1 / r(1)
    for job in jobs:
        if job.name in counts:
            rate = job.rate(counts[job.name]) * job.passing  # in samples of the stream
            pace, weight = streams.get(job.stream, (rate, 0.0))
            streams[job.stream] = min(pace, rate), weight + 1 / (job.rate(1) * job.passing)
    return sum(pace * weight for pace, weight in streams.values())


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
