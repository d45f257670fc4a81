"""Devices that nobody has reserved now, to those whom they help most."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, Policy, State, check_seconds
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.placing.placement import resized
from fleet.scheduling.reservations.guarantees import Guarantees
from fleet.scheduling.reservations.reservation import (
    MARGIN,
    Demand,
    Reservation,
    SpeedLevels,
    can_wait,
    next_bound,
    next_rise,
    reserved_at,
)


@dataclass(frozen=True)
class FirmShare:
    """The devices that a job has for sure, and how far more would help it.

    Attributes:
        name: the job's name.
        levels: its speeds.
        reserved: devices that it has in any case.
        held: devices that it has now.
        samples: samples that it must still train.
        restart: seconds that getting other devices costs.
        worth: samples/s for which it would pay one device-second later on.
    """

    name: str
    levels: SpeedLevels
    reserved: int
    held: int
    samples: float
    restart: float
    worth: float

    def value(self, level: int) -> float:
        """Device-seconds that each further device saves a second, from `level` to the next."""
        return self.levels.steps[level][1] / self.worth

    def pays(self, count: int) -> bool:
        """Whether moving from the devices held now to so many saves more than twice what it costs."""
        slow, fast = self.levels.rate(self.held), self.levels.rate(count)
        return fast > slow and self.samples * (1 / slow - 1 / fast) > 2 * self.restart


def share_spare(shares: Sequence[FirmShare], spare: int) -> dict[str, int]:
    """Job -> its devices: the reserved ones, and more, given in the order of their savings as long as there are any.

    Where moving costs time, a running job keeps its devices as far as possible, and moves only if that pays.

    Args:
        shares: the shares of all jobs; the first goes first where two would save the same.
        spare: devices beyond the reserved ones.
    """
    counts = {share.name: share.reserved for share in shares}
    moving = [share for share in shares if share.restart and share.held > share.reserved]
    for share in sorted(moving, key=lambda share: -share.value(max(0, share.levels.level(share.held) - 1))):
        if share.held - share.reserved <= spare:
            counts[share.name] = share.held
            spare -= share.held - share.reserved
    spare = _climb(shares, counts, spare)
    for share in shares:
        count = counts[share.name]
        if share.restart and share.reserved <= share.held < count and share.held and not share.pays(count):
            counts[share.name] = share.held
            spare += count - share.held
    _climb([share for share in shares if not share.held], counts, spare)
    return counts


def _climb(shares: Sequence[FirmShare], counts: dict[str, int], spare: int) -> int:
    """Give devices level by level, the most valuable first; return the number left over."""
    heap: list[tuple[float, int, int]] = []
    for index, share in enumerate(shares):
        level = share.levels.level(counts[share.name])
        if level < len(share.levels.steps):
            heap.append((-share.value(level), index, level))
    heapq.heapify(heap)
    while heap and spare:
        _, index, level = heap[0]
        share = shares[index]
        devices = share.levels.steps[level][0] - counts[share.name]
        if devices <= spare:
            counts[share.name] += devices
            spare -= devices
            level += 1
            if level < len(share.levels.steps):
                heapq.heapreplace(heap, (-share.value(level), index, level))
                continue
        heapq.heappop(heap)
    return spare


REFUSED: Reservation = ()

Known = dict[tuple[int, int], tuple[RateCurve, SpeedLevels]]
"""(id of a curve, limit) -> that curve, so that it lives on, and its levels."""


@dataclass(frozen=True)
class Deadline(Policy):
    """Promise a deadline only where it can be kept whatever comes later, and use all devices all the time.

    Every promise is a reservation: so many devices from then until then, restarts counted. A newcomer is admitted if
    reservations for it and for all others fit on the machine together, and refused at once if not; a soft deadline
    that cannot be promised makes the job one without deadline. Devices that nobody has reserved now go where they
    save most device-seconds later, to jobs without deadline as well, so that the reservations need less and less.

    Args:
        interval: seconds; what happens waits for the next multiple of it. 0: nothing waits.
    """

    name: ClassVar[str] = "deadline"

    interval: float = 0.0

    def __post_init__(self) -> None:
        check_seconds("interval", self.interval)

    def plan(self, state: State) -> Plan:
        """Admit or refuse new jobs, and give each job its reservation of now and a share of the rest."""
        planning = _Planning(state)
        planning.admit()
        counts, wake = planning.counts()
        return Plan(
            resized(counts, state),
            admitted=tuple(planning.admitted),
            dropped=planning.refused,
            promises=planning.promises,
            wake=wake,
            memo=planning.known,
        )


class _Planning:
    """One plan in the making.

    Attributes:
        admitted: jobs that are promised their deadline now.
        refused: job -> why it is dropped.
        promises: reservations that are new.
        known: the speed levels of each curve, kept as the memo.
    """

    def __init__(self, state: State) -> None:
        self._state, self._now = state, state.time
        self._devices = state.capacity
        self._before: Known = state.memo or {}
        self.known: Known = {}
        self.admitted: list[str] = []
        self.refused: dict[str, str] = {}
        self.promises: dict[str, Reservation] = {}
        margin = max(MARGIN, state.margin)
        self._demands = {job.name: Demand.of(job, self._levels(job), self._now, margin) for job in state.jobs}
        kept = [self._demands[job.name] for job in state.jobs if job.admitted]
        self._guarantees = Guarantees(kept, state.promises, self._now, self._devices)

    def admit(self) -> None:
        """Keep the promises, then take in newcomers, those first that need least of the machine."""
        for job in sorted(filter(self._state.is_new, self._state.jobs), key=self._cheapest):
            self._decide(job)

    def counts(self) -> tuple[dict[str, int], float]:
        """Job -> its devices from now on, and when a reservation needs more than its job has."""
        shares = self._shares()
        spare = self._devices - sum(share.reserved for share in shares)
        counts = share_spare(shares, spare)
        rises = (next_rise(reservation, self._now, counts[name]) for name, reservation in self._safe.items())
        wake = min(rises, default=math.inf)
        for share in shares:
            if share.restart and share.name in self._safe:
                wake = self._made_safe(share, counts, wake)
        for name, reservation in self._safe.items():
            if self._state.promises.get(name) is not reservation:
                self.promises[name] = reservation
        return counts, wake

    @property
    def _safe(self) -> dict[str, Reservation]:
        return self._guarantees.reservations

    def _cheapest(self, job: JobState) -> tuple[float, str]:
        return self._demands[job.name].least_device_seconds(self._now), job.name

    def _decide(self, job: JobState) -> None:
        demand = self._demands[job.name]
        possible = demand.possible(self._now)
        if possible and self._guarantees.admit(demand):
            self.admitted.append(job.name)
        elif job.soft or demand.samples == math.inf:
            self.promises[job.name] = REFUSED
        else:
            why = "beside the deadlines that are promised already" if possible else "even with the machine for itself"
            self.refused[job.name] = f"its deadline cannot be met {why}"

    def _shares(self) -> list[FirmShare]:
        """Those with a reservation by deadline, then the others, the shortest first."""
        jobs = [job for job in self._state.jobs if job.name not in self.refused]
        promised = sorted((job for job in jobs if job.name in self._safe), key=lambda job: (job.deadline, job.name))
        others = sorted((job for job in jobs if job.name not in self._safe), key=self._shortest)
        return [self._share(job) for job in promised + others]

    def _shortest(self, job: JobState) -> tuple[bool, float, float, str]:
        demand = self._demands[job.name]
        return not job.admitted, demand.samples / demand.levels.rate(1), job.arrival, job.name

    def _share(self, job: JobState) -> FirmShare:
        demand = self._demands[job.name]
        levels, reserved = demand.levels, 0
        level = 1  # what a job without deadline is worth: its first device
        if job.name in self._safe:
            reserved = reserved_at(self._safe[job.name], self._now)
            level = max(1, levels.slowest(demand.samples / max(1.0, demand.until - self._now)))
        return FirmShare(
            job.name, levels, reserved, demand.held, demand.samples, job.restart, levels.steps[level - 1][1]
        )

    def _made_safe(self, share: FirmShare, counts: dict[str, int], wake: float) -> float:
        """Check that the promise holds until `wake` on these devices; else give the reserved ones, wake sooner."""
        reservation, count = self._safe[share.name], counts[share.name]
        if can_wait(reservation, self._demands[share.name], count, self._now, wake):
            return wake
        if self._guarantees.hold(share.name, count):
            return wake
        counts[share.name] = share.reserved
        return min(wake, next_bound(reservation, self._now))

    def _levels(self, job: JobState) -> SpeedLevels:
        key = id(job.rate), job.limit
        found = self.known.get(key) or self._before.get(key)
        if found is None:
            found = job.rate, SpeedLevels(job.rate, min(job.limit, self._state.cluster.size))
        self.known[key] = found
        return found[1]
