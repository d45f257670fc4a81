"""What one job is promised over time, and what it gets now."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fleet.scheduling.elasticflow.buddy import BuddyTree
from fleet.scheduling.elasticflow.shares import (
    HORIZON,
    NOTHING,
    Levels,
    MinimumShare,
    Timetable,
    Window,
    fill_levels,
    fill_with_restarts,
    missed_by_moves,
    slot_at,
)
from fleet.scheduling.model.arrays import Counts
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import State

NO_DEVICES: Counts = np.zeros(0, np.int64)
NEVER = 1 << 62
"""A slot that never comes."""

Step = tuple[float, float, str, int, int, "PromisedJob"]
"""One level more for a job: minus what it returns, deadline, name, level, further devices, and what it is promised."""


@dataclass(eq=False)
class PromisedJob:
    """One job's promise, and its devices of now.

    Attributes:
        name: the job's name.
        levels: levels that it may have.
        deadline: the job's deadline, seconds; infinite: none.
        restart: seconds of the job's restart.
        share: its promise.
        devices: the same as devices by slot; int64.
        top: number of the highest level that it is promised in any slot; 0: it is promised nothing.
        target: number of the level that it gets now.
        steps: it may climb these, and the level k for which they are, see `Levels.returns`; 0: there are none.
    """

    name: str
    levels: Levels
    deadline: float
    restart: float
    share: MinimumShare = NOTHING
    devices: Counts = field(default_factory=lambda: NO_DEVICES)
    top: int = 0
    target: int = 0
    steps: list[Step] = field(default_factory=list)
    climbs: int = 0
    _now: tuple[int, int] = (-1, 0)
    _rise: tuple[int, int] = (-1, -1)

    def promise(self, share: MinimumShare) -> None:
        """This from now on."""
        numbers = share.array
        self.share, self.devices = share, self.levels.devices[numbers]
        self._now, self._rise = (-1, 0), (-1, -1)
        self.top = int(numbers.max(initial=0))

    def level(self, slot: int) -> int:
        """What it is promised in that slot: the number of a level."""
        asked, level = self._now
        if asked != slot:
            first, numbers, _ = self.share
            level = numbers[slot - first] if 0 <= slot - first < len(numbers) else 0
            self._now = slot, level
        return level

    def next_rise(self, slot: int) -> int:
        """The first slot after this one in which it is promised more than `target`; NEVER if none."""
        if self.top <= self.target:
            return NEVER
        target, found = self._rise
        if target != self.target or found <= slot:
            begin = max(0, slot + 1 - self.share.first)
            above = (self.share.array[begin:] > self.target).nonzero()[0]
            found = self.share.first + begin + int(above[0]) if len(above) else NEVER
            self._rise = self.target, found
        return found


def climb(steps: Iterable[Step], left: int) -> int:
    """Raise targets by these steps in their order, until no device is left or none helps; how many are left then."""
    for _, _, _, level, devices, claim in steps:
        if devices <= left and claim.target == level - 1:
            claim.target = level
            left -= devices
            if not left:
                break
    return left


_MARGIN = 1e-6
"""Seconds before its deadline at which a promised job is done, and a thousandth of it for each second: for rounding."""

REFILLS = 1000
"""Promises that are filled anew in one plan at most, so that it ends soon."""

SORTED_AT_ONCE = 200
"""From so many new steps on it is quicker to sort all than to put each in its place."""


class Promises:
    """The claims of all unfinished jobs, and the promised devices of each slot; a policy's memo.

    All of it follows from the state and its promises.

    Args:
        cluster: the machine.
        slot: seconds.

    Attributes:
        tree: the buddy tree of the cluster.
        claims: by job.
        given: the promises of this plan; None: there are none, and there will be none.
        owed: jobs that were admitted, but whose promises are broken.
        doubtful: jobs of which more is known than when their promises were made.
    """

    def __init__(self, cluster: Cluster, slot: float) -> None:
        self.tree = BuddyTree(cluster)
        self.claims: dict[str, PromisedJob] = {}
        self._steps: list[Step] = []  # in order
        self._new_steps: list[Step] = []  # not in order yet
        self.given: dict[str, MinimumShare | None] = {}
        self.owed: set[str] = set()
        self.doubtful: list[str] = []
        self.beyond: list[str] = []  # jobs that wait until their users have less promised
        self._slot = slot
        self._refills = REFILLS
        self._size = cluster.size
        self._line: list[tuple[float, str]] = []  # those who are promised something, by deadline
        self._table = Timetable(slot)
        self._levels: dict[tuple[int, int], tuple[Levels, object]] = {}

    @classmethod
    def of(cls, state: State, slot: float) -> tuple[Promises, list[JobState]]:
        """The claims after the latest events, and the jobs that are not decided yet."""
        book = state.memo if isinstance(state.memo, cls) else None
        names: Iterable[str] = state.by_name if book is None else state.changed
        if book is None:
            book = cls(state.cluster, slot)
        again, book.beyond = book.beyond, []
        book.given, book._refills, book.doubtful = {}, REFILLS, []
        new = []
        for name in dict.fromkeys((*names, *again)):
            if name not in state.by_name:
                book.remove(name)
            elif name in book.claims:
                book._renew(state.by_name[name])
            else:
                job = state.by_name[name]
                if job.admitted or name in state.promises or job.deadline == math.inf:
                    book._enter(job, state.promises.get(name))
                else:
                    new.append(job)
        return book, new

    @property
    def steps(self) -> list[Step]:
        """All claims, the one that returns most first."""
        new, self._new_steps = self._new_steps, []
        if len(new) > SORTED_AT_ONCE:
            self._steps = sorted(self._steps + new)
        else:
            for step in new:
                insort(self._steps, step)
        return self._steps

    def claim_of(self, job: JobState) -> PromisedJob:
        """A claim that is promised nothing."""
        key = id(job.rate), job.limit
        if len(self._levels) > 4 * len(self.claims) + 64:
            self._levels.clear()  # those of rates that were refined since
        if key not in self._levels:
            self._levels[key] = Levels.of(job.rate, job.limit, self._size), job.rate
        return PromisedJob(job.name, self._levels[key][0], job.deadline, job.restart)

    def remove(self, name: str) -> None:
        """A job has left, or is not admitted after all."""
        claim = self.claims.pop(name, None)
        if claim is not None:
            self._table.add(claim.share.first, -claim.devices)
            self._set(claim, NOTHING)
            self._set_steps(claim, 0)
            self.given.pop(name, None)
            self.owed.discard(name)

    def admit(self, job: JobState, state: State, capacity: int) -> bool:
        """Promise a job its deadline if all promises can be kept: beside them as they are, or with all filled anew.

        Args:
            capacity: devices that may be promised.
        """
        claim = self.claims.get(job.name) or self.claim_of(job)
        share = self._share(claim, job, state.time, capacity, self._table)
        if share is None:
            return self._could(claim, job, state.time) and self.refresh(state, capacity, [claim])
        self._table.add(share.first, claim.levels.devices[share.array])
        self._give(claim, share)
        return True

    def admit_together(self, jobs: Sequence[JobState], state: State, capacity: int) -> bool:
        """Promise all of these jobs their deadlines, or none of them."""
        claims = [self.claim_of(job) for job in jobs]
        could = all(self._could(claim, job, state.time) for claim, job in zip(claims, jobs))
        return could and self.refresh(state, capacity, claims)

    def refresh(self, state: State, capacity: int, new: Sequence[PromisedJob]) -> bool:
        """Fill all promises anew with the work that is left, and new ones: each in turn, in the order of deadlines.

        Where that would be more than REFILLS in one plan, it is for those that follow the new ones in line and then for
        those before them; the others stay as they are.

        Returns:
            False, and nothing is done, if one cannot be met.
        """
        again, table = self._again(new, state.time)
        line = _by_deadline([*again, *new])
        table, shares = self._filled(line, state, capacity, table, partly=False)
        if None in shares:
            return False
        self._table = table
        for claim, share in zip(line, shares):
            self._give(claim, share)
        return True

    def mend(self, state: State, capacity: int) -> None:
        """Keep what promises can be kept where devices are gone, or jobs are slower than was thought; make the broken
        ones anew.
        """
        if self._table.most(slot_at(state.time, self._slot)) > capacity:
            line = [self.claims[name] for _, name in self._line]
            empty = Timetable(self._slot, slot_at(state.time, self._slot))
            self._table, shares = self._filled(line, state, capacity, empty, partly=True)
            for claim, share in zip(line, shares):
                self._give(claim, share)
                if share is None:
                    self.owed.add(claim.name)
        for name in self.doubtful:
            claim = self.claims[name]
            if claim.top and not self._holds(claim, state.by_name[name], state.time):
                self._table.add(claim.share.first, -claim.devices)
                self._give(claim, None)
                self.owed.add(name)
        for name in sorted(self.owed):
            if self.admit(state.by_name[name], state, capacity):
                self.owed.discard(name)

    def late(self, state: State, capacity: int) -> dict[str, float]:
        """The jobs whose promises cannot be kept, and when each can be done at the earliest beside those that can."""
        return {name: self._earliest_end(self.claims[name], state, capacity) for name in sorted(self.owed)}

    def queue(self, job: JobState) -> None:
        """A job waits for devices that others need less; it is promised nothing."""
        self._give(self.claim_of(job), None)

    def serve(self, state: State, capacity: int) -> None:
        """Set aside devices for all jobs with a deadline, the nearest first, and refuse none; nothing is promised.

        Each has the least with which it is in time beside those before it. One that cannot be in time has the most
        that they leave until it is done, its deadline may have passed or not.
        """
        self._table = Timetable(self._slot, slot_at(state.time, self._slot))
        for claim in _by_deadline(claim for claim in self.claims.values() if claim.deadline < math.inf):
            job = state.by_name[claim.name]
            share = self._share(claim, job, state.time, capacity, self._table)
            if share is None:
                share = self._most(claim, job, state.time, capacity)
            self._table.add(share.first, claim.levels.devices[share.array])
            self._set(claim, share)

    def spare(self, claim: PromisedJob, job: JobState, now: float, after: int) -> float:
        """Samples by which a promise exceeds what a job needs if it now moves to the level of that number.

        Its promise is kept whatever comes if this is not negative: the move takes `restart` seconds, and so does each
        that follows from it. -1: it may have to move again at once.
        """
        if not claim.restart or not claim.top:
            return math.inf
        return self._more(claim, job, now, self._last(claim, now), now + claim.restart, after)

    def _holds(self, claim: PromisedJob, job: JobState, now: float) -> bool:
        """Whether a promise is still enough for what is left to do, at the rates that are known now."""
        return self._more(claim, job, now, claim.deadline, job.ready, claim.levels.number(job.held)) >= 0

    def _more(self, claim: PromisedJob, job: JobState, now: float, until: float, ready: float, held: int) -> float:
        """Samples by which a promise exceeds what a job needs that has the level of number `held` from `ready` on."""
        begin = slot_at(now, self._slot)
        numbers = claim.share.array[begin - claim.share.first :]
        end = (claim.share.first + len(claim.share.numbers)) * self._slot
        window = Window.of(now, min(end, until), self._slot)
        if window is None or not len(numbers):
            return -math.inf
        needed = job.remaining_at(now)
        if claim.restart:
            busy = max(now, (begin + int((numbers > 0).argmax())) * self._slot)
            needed += max(0.0, ready - busy) * claim.levels.rates[int(numbers.max())]
            needed += missed_by_moves(claim.levels, numbers, claim.restart, held)
        return window.work(numbers, claim.levels.rates) - needed

    def _earliest_end(self, claim: PromisedJob, state: State, capacity: int) -> float:
        """When a job is done that has all devices which nobody is promised; seconds since the run began."""
        _, end = self._free_until_done(claim, state.by_name[claim.name], state.time, capacity)
        return max(end, claim.deadline)

    def _most(self, claim: PromisedJob, job: JobState, now: float, capacity: int) -> MinimumShare:
        """All that nobody else is promised until the job is done; nothing if its end is not known."""
        first = slot_at(now, self._slot)
        free, end = self._free_until_done(claim, job, now, capacity)
        if end == math.inf:
            return NOTHING
        slots = max(1, min(HORIZON, math.ceil(end / self._slot) - first))
        lasting = np.append(free[:slots], np.full(max(0, slots - len(free)), capacity))
        return MinimumShare(first, claim.levels.fitting[lasting].tobytes(), claim.levels.counts)

    def _free_until_done(self, claim: PromisedJob, job: JobState, now: float, capacity: int) -> tuple[Counts, float]:
        """Devices that nobody is promised, by slot from now on, and when a job is done that has all of them.

        The last number holds for all later slots; seconds since the run began.
        """
        levels = claim.levels
        begin = max(now, job.ready if job.held else now + claim.restart)
        now_slot, first = slot_at(now, self._slot), slot_at(begin, self._slot)
        free = np.maximum(0, np.append(capacity - self._table.ahead(now_slot), capacity))  # after the last promise all
        usable = free[min(first - now_slot, len(free) - 1) :]
        rates = np.array(levels.rates)[levels.fitting[usable]]
        bounds = np.append(np.arange(first, first + len(rates)) * self._slot, math.inf)
        bounds[0] = begin
        work = np.cumsum(rates[:-1] * np.diff(bounds)[:-1])
        left = max(0.0, job.remaining_at(now))
        slot = int(np.searchsorted(work, left))
        done = float(work[slot - 1]) if slot else 0.0
        return free, float(bounds[slot]) + (left - done) / float(rates[slot]) if rates[slot] else math.inf

    def _could(self, claim: PromisedJob, job: JobState, now: float) -> bool:
        """Whether a job could meet its deadline if it were alone."""
        window, work = Window.of(now, self._last(claim, now), self._slot), job.remaining_at(now)
        return window is not None and claim.levels.alone(work, window.seconds) is not None

    def _last(self, claim: PromisedJob, now: float) -> float:
        """When a job must be done at the latest."""
        return claim.deadline - _MARGIN * (1 + (claim.deadline - now) / 1000)

    def _enter(self, job: JobState, share: MinimumShare | None) -> None:
        """A job is there, with what it was promised."""
        claim = self.claims[job.name] = self.claim_of(job)
        self._set(claim, (share or NOTHING).on(claim.levels))
        self._table.add(claim.share.first, claim.devices)
        if job.admitted and share is None:
            self.owed.add(job.name)
        elif claim.top:
            self.doubtful.append(job.name)

    def _renew(self, job: JobState) -> None:
        """More is known of a job, such as its rates; its claim is by these from now on."""
        before = self.claims[job.name]
        claim = self.claim_of(job)
        if (claim.levels, claim.restart) != (before.levels, before.restart):
            share = before.share
            self._table.add(share.first, -before.devices)
            self._set(before, NOTHING)
            self._set_steps(before, 0)
            self.claims[job.name] = claim
            self._set(claim, share.on(claim.levels))
            self._table.add(claim.share.first, claim.devices)
            if claim.share is not share:
                self.given[job.name] = claim.share
        if self.claims[job.name].top:
            self.doubtful.append(job.name)

    def _again(self, new: Sequence[PromisedJob], now: float) -> tuple[list[PromisedJob], Timetable]:
        """The promises to be filled anew for new ones, and the table without them."""
        line, most = self._line, self._refills
        if len(line) <= most:
            self._refills -= len(line)
            return [self.claims[name] for _, name in line], Timetable(self._slot, slot_at(now, self._slot))
        self._refills = 0
        place = bisect_left(line, min((claim.deadline, claim.name) for claim in new))
        begin = max(0, min(place, len(line) - most))
        claims = [self.claims[name] for _, name in line[begin : begin + most]]
        table = self._table.copy()
        for claim in claims:
            table.add(claim.share.first, -claim.devices)
        return claims, table

    def _filled(
        self, line: Iterable[PromisedJob], state: State, capacity: int, table: Timetable, partly: bool
    ) -> tuple[Timetable, list[MinimumShare | None]]:
        """Progressive filling of one after the other; unless `partly` it ends at the first that cannot be met."""
        shares: list[MinimumShare | None] = []
        for claim in line:
            share = self._share(claim, state.by_name[claim.name], state.time, capacity, table)
            shares.append(share)
            if share is not None:
                table.add(share.first, claim.levels.devices[share.array])
            elif not partly:
                break
        return table, shares

    def _share(
        self, claim: PromisedJob, job: JobState, now: float, capacity: int, table: Timetable
    ) -> MinimumShare | None:
        """The least that a job must have beside the promises in the table; None: it would be late."""
        window, work, levels = Window.of(now, self._last(claim, now), self._slot), job.remaining_at(now), claim.levels
        if window is None or work == math.inf:
            return None
        free = capacity - table.used(window.first, window.last)
        if claim.restart:
            work += levels.rates[-1] * max(0.0, job.ready - now)
            numbers = fill_with_restarts(levels, work, window, free, claim.restart, levels.number(job.held))
        else:
            numbers = fill_levels(levels, work, window, free)
        return None if numbers is None else MinimumShare(window.first, numbers.tobytes(), levels.counts)

    def _give(self, claim: PromisedJob, share: MinimumShare | None) -> None:
        """Promise a job this from now on; the table knows already."""
        self.claims[claim.name] = claim
        self._set(claim, share or NOTHING)
        self.given[claim.name] = share

    def _set(self, claim: PromisedJob, share: MinimumShare) -> None:
        """Note what a job is promised; the table knows already."""
        place, before = (claim.deadline, claim.name), claim.top
        claim.promise(share)
        if claim.top and not before:
            insort(self._line, place)
        elif before and not claim.top:
            del self._line[bisect_left(self._line, place)]
        self._set_steps(claim, claim.top or 1)

    def _set_steps(self, claim: PromisedJob, k: int) -> None:
        """The steps that a job may climb whose highest promised level is k; 0: none."""
        if claim.climbs == k:
            return
        if claim.steps:
            ordered = self.steps
            for step in claim.steps:
                del ordered[bisect_left(ordered, step)]
        counts = claim.levels.counts
        claim.climbs, claim.steps = k, []
        for level, value in enumerate(claim.levels.returns(k), 1):
            step = (-value, claim.deadline, claim.name, level, counts[level] - counts[level - 1], claim)
            claim.steps.append(step)
        self._new_steps += claim.steps


def _by_deadline(claims: Iterable[PromisedJob]) -> list[PromisedJob]:
    return sorted(claims, key=lambda claim: (claim.deadline, claim.name))
