"""Which jobs share a lane, at which pace, and how many devices each needs to keep it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fleet.scheduling.model.arrays import Counts, Flags, Floats
from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.sharing.knapsacks import NEVER, fewest_devices, knapsacks
from fleet.scheduling.sharing.water_filling import WaterLevel

_PACES = 60  # that are tried for the lanes of a sharing class
_AHEAD = (
    0.1  # how much more a sample is worth of a job that is about to need a further device, than of one that just got it
)


@dataclass(frozen=True)
class PacedLane:
    """Jobs that read together.

    Attributes:
        counts: job (its index) -> its devices.
        pace: samples/s of all of them: the rate of the slowest.
    """

    counts: Mapping[int, int]
    pace: float

    @property
    def devices(self) -> int:
        """The devices of all members."""
        return sum(self.counts.values())

    def value(self, worth: Floats) -> float:
        """What its samples are worth each second, in devices."""
        return self.pace * float(worth[list(self.counts)].sum())


@dataclass(frozen=True, eq=False)
class Market:
    """The jobs, and what one sample/s of each is worth: the devices that it costs at the job's share.

    At the optimum of water-filling both corners about the share of a job are worth as many devices as they take. A lane
    whose pace lies below a member's rate brings less than it takes.

    Args:
        jobs: all unfinished ones.
        filling: by water-filling.
        limit: devices there are.
    """

    jobs: Sequence[JobState]
    filling: WaterLevel
    limit: int
    worth: Floats = field(init=False)
    _rows: list[tuple[Counts, Floats]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rows = [job.rate.rising(min(job.limit, self.limit)) for job in self.jobs]
        low, high = self.filling.low, self.filling.high
        rise = np.array([_rate(row, h) - _rate(row, m) for row, m, h in zip(rows, low.tolist(), high.tolist())])
        worth = (high - low) / rise * (1 + _AHEAD * (self.filling.parts - 0.5))
        object.__setattr__(self, "worth", worth)
        object.__setattr__(self, "_rows", rows)

    def rate(self, job: int, count: int) -> float:
        """r(count) of a job."""
        return self.jobs[job].rate(count)

    def lanes(self, candidates: Sequence[int], devices: int, slots: Mapping[str, int]) -> list[PacedLane]:
        """Lanes of candidates on `devices` devices: at most `slots` of each stream, and one of each job without stream.

        The paces are chosen one after the other: each time the one with which the jobs that then fit are worth most
        (a fractional knapsack by worth per device).
        """
        if not candidates or devices < 1:
            return []
        offers = self._offers(candidates, slots)
        chosen = offers.choose(devices)
        return self._filled(candidates, offers, chosen, devices)

    def _offers(self, candidates: Sequence[int], slots: Mapping[str, int]) -> _Offers:
        """Every pace that a lane could have, with what it takes of each candidate and what it is worth."""
        streams: dict[str, list[int]] = {}
        for place, job in enumerate(candidates):
            streams.setdefault(self.jobs[job].stream or f"\0{job}", []).append(place)
        paces, owners = [], []
        for stream, members in streams.items():
            left = 1 if stream.startswith("\0") else slots.get(stream, 0)
            if left > 0:
                found = _thinned(np.unique(np.concatenate([self._own_paces(candidates[place]) for place in members])))
                paces += found.tolist()
                owners += [stream] * len(found)
        pace = np.array(paces)
        counts = np.full((len(pace), len(candidates)), NEVER, np.int64)
        of_stream = np.array(owners)
        for stream, members in streams.items():
            which = np.flatnonzero(of_stream == stream) if len(owners) else np.zeros(0, np.int64)
            for place in members:
                counts[which, place] = fewest_devices(self._rows[candidates[place]], pace[which])
        gains = pace[:, None] * self.worth[list(candidates)][None, :]
        allowed = {stream: 1 if stream.startswith("\0") else slots.get(stream, 0) for stream in streams}
        return _Offers(pace, owners, counts, np.where(counts < NEVER, gains, 0.0), allowed)

    def _own_paces(self, job: int) -> Floats:
        """The rates at the corners about a job's share."""
        counts, rates = self._rows[job]
        about = [self.filling.low[job], self.filling.high[job]]
        own: Floats = rates[np.searchsorted(counts, [count for count in about if count > 0])]
        return own

    def _filled(self, candidates: Sequence[int], offers: _Offers, chosen: list[int], devices: int) -> list[PacedLane]:
        """The jobs that fit, by worth per device, each on the lane that is best for it."""
        members: dict[int, dict[int, int]] = {offer: {} for offer in chosen}
        profits = offers.gains[chosen] - offers.counts[chosen] if chosen else np.zeros((0, len(candidates)))
        waiting = list(range(len(candidates))) if chosen else []
        best = profits.argmax(axis=0) if chosen else np.zeros(0, np.int64)
        takes = offers.counts[np.array(chosen)[best], waiting] if chosen else np.zeros(0, np.int64)
        density = offers.gains[np.array(chosen)[best], waiting] / takes if chosen else np.zeros(0)
        for place in np.argsort(-density, kind="stable").tolist():
            offer = chosen[int(best[place])]
            if offers.counts[offer, place] > devices:
                fits = [offer for offer in chosen if offers.counts[offer, place] <= devices] if devices else []
                if not fits:
                    continue
                offer = max(fits, key=lambda fit: offers.gains[fit, place])
            count = int(offers.counts[offer, place])
            members[offer][candidates[place]] = count
            devices -= count
        return [self.lane(counts) for counts in members.values() if counts]

    def lane(self, counts: Mapping[int, int]) -> PacedLane:
        """A lane of these jobs on so many devices."""
        return PacedLane(dict(counts), min(self.rate(job, count) for job, count in counts.items()))


@dataclass(frozen=True, eq=False)
class _Offers:
    """Paces that lanes could have; arrays by (pace, candidate)."""

    paces: Floats
    owners: list[str]
    counts: Counts
    gains: Floats
    allowed: dict[str, int]

    def choose(self, devices: int) -> list[int]:
        """The paces of the lanes, in the order of choice."""
        chosen: list[int] = []
        open_: Flags = np.ones(len(self.paces), bool)
        streams = np.array(self.owners)
        left = dict(self.allowed)
        width = self.counts.shape[1]
        profit, gains, counts = np.full(width, -np.inf), np.zeros(width), np.full(width, NEVER)
        value = 0.0
        while open_.any():
            offers = np.flatnonzero(open_)
            offered = self.gains[offers] - self.counts[offers]
            better = offered > profit
            values, _ = knapsacks(
                np.where(better, self.gains[offers], gains), np.where(better, self.counts[offers], counts), devices
            )
            best = int(values.argmax())
            if values[best] <= value * (1 + 1e-9):
                break
            offer, value = int(offers[best]), float(values[best])
            chosen.append(offer)
            gains = np.where(better[best], self.gains[offer], gains)
            counts = np.where(better[best], self.counts[offer], counts)
            profit = np.maximum(profit, offered[best])
            left[self.owners[offer]] -= 1
            open_[offer] = False
            if left[self.owners[offer]] < 1:
                open_ &= streams != self.owners[offer]
        return chosen


def _rate(row: tuple[Counts, Floats], count: int) -> float:
    counts, rates = row
    return float(rates[np.searchsorted(counts, count)]) if count else 0.0


def _thinned(paces: Floats) -> Floats:
    """No more than are tried, spread over all."""
    if len(paces) <= _PACES:
        return paces
    return paces[np.linspace(0, len(paces) - 1, _PACES).astype(np.int64)]
