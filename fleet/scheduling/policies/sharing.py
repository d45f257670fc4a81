"""A few streams of shared samples at a time, each at a pace that suits its readers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fleet.scheduling.model.arrays import Counts, Flags, Floats
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, Policy, State, check_count, check_mean_epochs
from fleet.scheduling.model.remaining_epochs import remaining_samples
from fleet.scheduling.placing.placement import place_changed
from fleet.scheduling.policies.malleable import WaterLevel, expected_end, pour_out, water_fill

NEVER = 1 << 40
"""Devices that a job needs for a pace that it cannot keep."""
_PART_ROUNDING = 1e-12


def knapsacks(gains: Floats, counts: Counts, devices: int) -> tuple[Floats, Floats]:
    """The most that jobs bring on the devices, if each may be there in part.

    Args:
        gains: each job's gains, by (knapsack, job).
        counts: devices that it needs, 1 or more, by (knapsack, job).

    Returns:
        The value of each knapsack, and the part of each job in it, by (knapsack, job).
    """
    order = np.argsort(-gains / counts, axis=1, kind="stable")
    taken = np.take_along_axis(counts, order, 1)
    before = np.cumsum(taken, axis=1) - taken
    parts = np.empty_like(gains)
    np.put_along_axis(parts, order, np.clip((devices - before) / taken, 0.0, 1.0), 1)
    values: Floats = (gains * parts).sum(axis=1)
    return values, parts


def fewest_devices(row: tuple[Counts, Floats], paces: Floats) -> Counts:
    """The fewest devices on which a job keeps each pace; `row`: its useful counts and the rates at them."""
    counts, rates = row
    place = np.searchsorted(rates, paces * (1 - _PART_ROUNDING))
    return np.where(place < len(counts), counts[np.minimum(place, len(counts) - 1)], NEVER)


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
