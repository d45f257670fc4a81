"""Which further jobs join a flotilla, on devices that its members do not need to keep one pace."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

from fleet.scheduling.flotillas.choices import CandidateRates
from fleet.scheduling.model.arrays import Floats
from fleet.scheduling.model.state import JobState

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
