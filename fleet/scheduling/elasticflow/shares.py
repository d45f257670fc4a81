"""What a job must have to meet its deadline: minimum satisfactory share and progressive filling (ElasticFlow, 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleet.scheduling.model.arrays import Counts
from fleet.scheduling.model.rates import RateCurve

LevelNumbers = npt.NDArray[np.uint8]

HORIZON = 1 << 15
"""Slots into the future that are looked at; a job whose deadline lies beyond is filled until there."""


@dataclass(frozen=True, eq=False)
class Levels:
    """The counts of devices that a job may have: powers of two, each faster than all below it; level 0 is none.

    Attributes:
        counts: devices by level; the first is 0.
        rates: samples/s by level, the paper's T; the first is 0.
        fitting: the highest level that fits into so many devices; uint8 of shape (cluster size + 1,).
        devices: `counts` as an array.
    """

    counts: tuple[int, ...]
    rates: tuple[float, ...]
    fitting: LevelNumbers
    devices: Counts

    @classmethod
    def of(cls, rate: RateCurve, limit: int, size: int) -> Levels:
        """The levels of a job that can use up to `limit` devices of a cluster of `size`."""
        counts, rates = [0], [0.0]
        count = 1
        while count <= min(limit, size):
            if (value := rate(count)) > rates[-1]:
                counts.append(count)
                rates.append(value)
            count *= 2
        return cls(tuple(counts), tuple(rates), _fitting(tuple(counts), size), np.array(counts, np.int64))

    def returns(self, k: int) -> list[float]:
        """What each step from level l - 1 to l returns a job whose highest promised level is k; k = 0: there is none.

        More devices now save some later. The paper's priority, the sum over slots of a(t) - x(t) (Algorithm 2), is for
        a step in a slot of s seconds

            (T(l) - T(l-1)) s u - (c(l) - c(l-1)) s,    u = (c(k) - c(k-1)) / (T(k) - T(k-1)),

        c being devices and T samples/s: the latest slots at level k are those that the job needs no longer. Here the
        first term over c(l) - c(l-1): devices saved by device given. None is above one before it, so that the order of
        returns is one in which a job can climb.
        """
        pairs = list(zip(self.counts, self.rates))
        added = [(rate - below) / (count - fewer) for (fewer, below), (count, rate) in zip(pairs, pairs[1:])]
        return list(accumulate((value / added[k - 1] for value in added), min)) if k else []

    def number(self, count: int) -> int:
        """The number of the highest level that fits into so many devices."""
        return int(self.fitting[count])

    def alone(self, work: float, seconds: float) -> int | None:
        """The lowest level that trains `work` samples in so many seconds: the minimum satisfactory share, if alone."""
        return next((level for level, rate in enumerate(self.rates) if rate * seconds >= work), None)


@lru_cache(maxsize=256)
def _fitting(counts: tuple[int, ...], size: int) -> LevelNumbers:
    """By number of free devices, up to `size`, the highest level that fits; read-only."""
    fitting = np.searchsorted(counts, np.arange(size + 1), side="right").astype(np.uint8) - np.uint8(1)
    fitting.flags.writeable = False
    return fitting


def slot_at(now: float, slot: float) -> int:
    """The number of the slot in which `now` lies; it ends after `now`."""
    number = int(now // slot)
    return number + 1 if (number + 1) * slot <= now else number


class Window(NamedTuple):
    """The time that a job has: slots first .. last, of which it has all but the begin of one and the end of the other.

    Attributes:
        first, last: numbers of slots; slot s begins at s times the length of a slot.
        head: seconds of the first that it has.
        tail: seconds of the last that it has; where first and last are one, `head` is what it has of it.
        slot: seconds of every other one.
    """

    first: int
    last: int
    head: float
    tail: float
    slot: float

    @classmethod
    def of(cls, now: float, deadline: float, slot: float) -> Window | None:
        """From now until the deadline; None where nothing is left."""
        if deadline <= now:
            return None
        first = slot_at(now, slot)
        last = max(first, int(-(-deadline // slot)) - 1)
        if last - first >= HORIZON:
            last = first + HORIZON - 1
            deadline = (last + 1) * slot
        if first == last:
            return cls(first, last, deadline - now, deadline - now, slot)
        return cls(first, last, (first + 1) * slot - now, deadline - last * slot, slot)

    @property
    def length(self) -> int:
        """How many slots it touches."""
        return self.last - self.first + 1

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.head if self.first == self.last else self.head + self.tail + (self.length - 2) * self.slot

    def work(self, numbers: LevelNumbers, rates: Sequence[float]) -> float:
        """Samples that a job trains in it with these levels, one for each slot."""
        times = np.bincount(numbers, minlength=len(rates)).tolist()
        inside = sum(rate * count for rate, count in zip(rates, times)) * self.slot
        return inside - self._cut(rates[numbers[0]], rates[numbers[-1]])

    def _cut(self, first: float, last: float) -> float:
        """Samples of the parts of the outer slots that it has not, at these rates."""
        if self.first == self.last:
            return first * (self.slot - self.head)
        return first * (self.slot - self.head) + last * (self.slot - self.tail)


class Timetable:
    """How many devices are promised in each slot, from now on.

    Args:
        slot: seconds.
        begin: the first slot.
    """

    def __init__(self, slot: float, begin: int = 0) -> None:
        self.slot = slot
        self._begin = begin
        self._used = np.zeros(256, np.int64)

    def used(self, first: int, last: int) -> Counts:
        """Devices promised in slots first .. last; a view."""
        if first < self._begin or last - self._begin >= len(self._used):
            self._reach(first, last)
        return self._used[first - self._begin : last + 1 - self._begin]

    def add(self, first: int, devices: Counts) -> None:
        """Promise so many in the slots from `first` on; negative numbers take promises back; the past is left out."""
        if past := max(0, self._begin - first):
            first, devices = first + past, devices[past:]
        if len(devices):
            view = self.used(first, first + len(devices) - 1)
            view += devices

    def copy(self) -> Timetable:
        """Copy the timetable, so that changes leave no trace here."""
        other = Timetable(self.slot, self._begin)
        other._used = self._used.copy()
        return other

    def most(self, first: int) -> int:
        """The most devices that are promised in any slot from `first` on."""
        return int(self.ahead(first).max(initial=0))

    def ahead(self, first: int) -> Counts:
        """Devices promised in the slots from `first` on, as far as the table reaches; none are after it."""
        return self._used[max(0, first - self._begin) :]

    def _reach(self, first: int, last: int) -> None:
        """Move or lengthen the table so that it holds these slots; what lies before `first` is past."""
        keep = self._used[max(0, first - self._begin) :]
        used = np.zeros(max(2 * (last + 1 - first), len(keep) + 256), np.int64)
        at = max(0, self._begin - first)
        used[at : at + len(keep)] = keep[: len(used) - at]
        self._begin, self._used = first, used


class MinimumShare(NamedTuple):
    """A job's promise: the number of its level in each slot from `first` on, and the devices of each level."""

    first: int
    numbers: bytes
    counts: tuple[int, ...] = ()

    @property
    def array(self) -> LevelNumbers:
        """The numbers as uint8 of shape (slots,), read-only."""
        return np.frombuffer(self.numbers, np.uint8)

    def on(self, levels: Levels) -> MinimumShare:
        """Return the share with these devices, or as many as a level has, where a job's levels are others now."""
        if not self.numbers or self.counts == levels.counts:
            return self
        devices = np.array(self.counts, np.int64)[self.array]
        numbers = levels.fitting[np.minimum(devices, len(levels.fitting) - 1)]
        return MinimumShare(self.first, numbers.tobytes(), levels.counts)


NOTHING = MinimumShare(0, b"")


def fill_levels(levels: Levels, work: float, window: Window, free: Counts) -> LevelNumbers | None:
    """Progressive filling (Algorithm 1): the levels that train `work` samples in the window with the least devices.

    The paper raises j until x(t) = min(j, free(t)) is enough. Here the slots before some point have the level below
    instead, so that only as many have the last one as must: the latest ones, which leaves the near future free for
    those who come.

    Args:
        levels: which ones the job may have.
        work: samples, above 0.
        window: until its deadline.
        free: devices by slot of the window.

    Returns:
        Numbers of levels by slot; None: the deadline cannot be met.
    """
    fitting = levels.fitting[free]
    rates, slot = levels.rates, window.slot
    times = np.bincount(fitting, minlength=len(rates)).tolist()
    first, last = int(fitting[0]), int(fitting[-1])
    head, tail = slot - window.head, slot - window.tail if window.length > 1 else 0.0  # seconds that are not there
    above, done = len(fitting), 0.0  # slots where the level fits; samples with those below it
    for level in range(1, len(rates)):
        above -= times[level - 1]
        step = rates[level] - rates[level - 1]
        gain = step * (above * slot - (head if first >= level else 0.0) - (tail if last >= level else 0.0))
        if done + gain >= work:
            return _latest(fitting, level, (work - done) / step, window)
        done += gain
    return None


def fill_with_restarts(
    levels: Levels, work: float, window: Window, free: Counts, restart: float, held: int
) -> LevelNumbers | None:
    """Fill as `fill_levels` does, with as much more as the job misses at each change of its level: `restart` seconds.

    Args:
        restart: seconds.
        held: number of the level that it has now.
    """
    needed = work
    while (numbers := fill_levels(levels, needed, window, free)) is not None:
        whole = work + missed_by_moves(levels, numbers, restart, held)
        missing = whole - window.work(numbers, levels.rates)
        if missing <= 0:
            return numbers
        needed = max(needed + missing, whole)  # whole slots may give more than `needed`
    return None


def missed_by_moves(levels: Levels, numbers: LevelNumbers, restart: float, held: int) -> float:
    """Samples that a job cannot train while it moves to these levels, at most."""
    before = np.concatenate(([held], numbers[:-1]))
    moves = int(np.count_nonzero((numbers != before) & (numbers > 0)))
    return moves * restart * levels.rates[int(numbers.max())]


def _latest(fitting: LevelNumbers, level: int, seconds: float, window: Window) -> LevelNumbers:
    """The level below everywhere, and this one in as many of the latest slots as last so many seconds."""
    numbers = np.minimum(fitting, level)
    having = (numbers == level).nonzero()[0]
    if window.length > 1 and having[-1] == len(fitting) - 1:
        seconds += window.slot - window.tail
    slots = max(1, int(-(-seconds // window.slot)))
    if slots < len(having):
        early = numbers[: having[-slots]]
        np.minimum(early, level - 1, out=early)
    return numbers
