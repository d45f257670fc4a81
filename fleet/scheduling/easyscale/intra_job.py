"""Where a job's workers run, what it proposes (Eq. 1), and which proposals are approved (EasyScale, SC'23, 3.4)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product


@dataclass(frozen=True)
class Proposal:
    """A job asks for more devices of one kind.

    Attributes:
        job: its name.
        kind: index of the kind.
        count: how many more.
        nums: devices of each kind that it would have then; of other kinds perhaps fewer than now.
        speedup: what each of the new devices brings: (perf / perf now - 1) / count.
    """

    job: str
    kind: int
    count: int
    nums: tuple[int, ...]
    speedup: float

    @property
    def order(self) -> tuple[float, int]:
        """The smaller goes first: the larger speed-up for each device, then the more devices."""
        return -round(self.speedup, 9), -self.count


def approved(proposals: Iterable[Proposal], available: tuple[int, ...]) -> list[Proposal]:
    """Algorithm 1: the best proposals that the available devices suffice for, at most one of each job.

    Ties go to the proposal that was named first. As printed the algorithm never ends once the best proposal does not
    fit; here it is passed over.

    Args:
        available: devices of each kind.
    """
    left, found, served = list(available), [], set()
    for proposal in sorted(proposals, key=lambda one: one.order):
        if proposal.job not in served and proposal.count <= left[proposal.kind]:
            left[proposal.kind] -= proposal.count
            served.add(proposal.job)
            found.append(proposal)
    return found


KindCounts = tuple[int, ...]
"""One number for each kind of device, in the order of the cluster's kinds."""
Measured = Callable[[KindCounts], float | None]
"""Samples/s on so many devices of each kind, where that was measured."""

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Capability:
    """What a device of one kind can do for a job.

    Args:
        speed: C_i, samples/s of one executor that has the device for itself: its mini-batches/s x their samples.
        executors: most executors that fit in its memory.
        interference: I_i, the part of its speed that an executor keeps beside others; above 0, at most 1.
        measured: samples/s of one of 1, 2, ... executors on the device, where that was measured; it goes before `speed`
            and `interference`.

    Raises:
        ValueError: a number out of its range.
    """

    speed: float
    executors: int = 1
    interference: float = 1.0
    measured: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not (self.speed > 0 and self.executors >= 1 and 0 < self.interference <= 1):
            raise ValueError(
                f"speed {self.speed}, executors {self.executors}, interference {self.interference}: "
                "they must be above 0, 1 or more, and above 0 and at most 1"
            )

    def each(self, executors: int) -> float:
        """C_i I_i: samples/s of one of so many executors on the device."""
        if executors <= len(self.measured):
            return self.measured[executors - 1]
        return self.speed if executors == 1 else self.speed * self.interference


@dataclass(frozen=True)
class WorkerConfiguration:
    """<nums, executors, threads, waste, perf>: where a job's virtual workers run, and what comes of it.

    Attributes:
        nums: N_i, devices of each kind.
        executors: m_i on each device.
        threads: A_i, virtual workers of each executor at most.
        waste: Eq. 1d, the part of the devices' speed that is lost.
        perf: Eq. 1e, samples/s.
    """

    nums: KindCounts
    executors: KindCounts
    threads: KindCounts
    waste: float
    perf: float

    @property
    def devices(self) -> int:
        """How many, of all kinds."""
        return sum(self.nums)


def evaluate(
    nums: KindCounts, executors: KindCounts, threads: KindCounts, capabilities: Sequence[Capability], workers: int
) -> WorkerConfiguration | None:
    """Equations 1a to 1e, with MC_i = m C_i I_i for C_i and MA_i = m A_i for A_i.

        CU_capacity = sum N_i MA_i >= maxP                                                   (1a)
        f_overload  = max over N_i > 0 of MA_i / MC_i                                        (1b)
        waste       = sum N_i (MC_i - MA_i / f_overload) + (CU_capacity - maxP) / f_overload (1c)
        waste_norm  = waste / sum N_i MC_i                                                   (1d)
        perf        = sum N_i MC_i - waste = maxP / f_overload                               (1e)

    Eq. 1c is printed without the first N_i. It is a sum over devices: only so is `perf` what a step that ends with the
    slowest device gives.

    Args:
        workers: maxP.

    Returns:
        None where the devices have no room for all workers (1a).
    """
    used = [i for i, count in enumerate(nums) if count]
    mc = {i: executors[i] * capabilities[i].each(executors[i]) for i in used}
    ma = {i: executors[i] * threads[i] for i in used}
    capacity = sum(nums[i] * ma[i] for i in used)
    if not used or capacity < workers:
        return None
    overload = max(ma[i] / mc[i] for i in used)
    waste = sum(nums[i] * (mc[i] - ma[i] / overload) for i in used) + (capacity - workers) / overload
    whole = sum(nums[i] * mc[i] for i in used)
    return WorkerConfiguration(nums, executors, threads, waste / whole, whole - waste)


def configure(nums: KindCounts, capabilities: Sequence[Capability], workers: int) -> WorkerConfiguration | None:
    """The fastest configuration of these devices; with fewer executors on ties. None: there is no device.

    Whatever time t a step may take, A_i = floor(t C_i) is the most that no device needs longer for. So the smallest t
    with room for all workers is best, and it is one of k / C_i: where some device undertakes k workers.
    """
    choices = [_executors(one, count, workers) for count, one in zip(nums, capabilities)]
    found = (
        evaluate(nums, m, _threads(nums, m, capabilities, workers), capabilities, workers) for m in product(*choices)
    )
    several = [one for one in found if one is not None]
    return max(several, key=lambda one: (one.perf * (1 - _ROUNDING), -sum(one.executors)), default=None)


def _executors(capability: Capability, count: int, workers: int) -> Sequence[int]:
    """How many there may be on each of so many devices of a kind: no more than have a worker each."""
    return range(1, max(1, min(capability.executors, workers // count)) + 1) if count else (0,)


def _threads(nums: KindCounts, executors: KindCounts, capabilities: Sequence[Capability], workers: int) -> KindCounts:
    """A_i at the smallest t that has room for all workers."""
    used = [i for i, count in enumerate(nums) if count]
    if len(used) == 1:
        alone = -(-workers // (nums[used[0]] * executors[used[0]]))
        return tuple(alone if i in used else 0 for i in range(len(nums)))
    speeds = {i: capabilities[i].each(executors[i]) for i in used}

    def at(t: float) -> dict[int, int]:
        return {i: min(workers, int(t * speeds[i] * (1 + _ROUNDING))) for i in used}

    times = sorted({k / speed for speed in speeds.values() for k in range(1, workers + 1)})
    first = bisect_left(times, True, key=lambda t: sum(nums[i] * executors[i] * a for i, a in at(t).items()) >= workers)
    chosen = at(times[first]) if times else {}
    return tuple(chosen.get(i, 0) for i in range(len(nums)))


@dataclass
class PlanDatabase:
    """The configurations of one job, computed as they are asked for: the companion module (3.4.2).

    Args:
        capabilities: by kind.
        workers: maxP.
        least: minP; a job runs on that many devices or more.
        most: devices that it can use.
        there: devices of each kind that it may use.
        max_waste: Eq. 1d of a configuration that is worth proposing.
    """

    capabilities: tuple[Capability, ...]
    workers: int
    least: int
    most: int
    there: KindCounts
    max_waste: float = 0.3
    _measured: Measured | None = field(default=None, init=False, repr=False)
    _best: dict[KindCounts, WorkerConfiguration | None] = field(default_factory=dict, init=False, repr=False)
    _perf: dict[KindCounts, float] = field(default_factory=dict, init=False, repr=False)
    _proposed: dict[KindCounts, list[Proposal]] = field(default_factory=dict, init=False, repr=False)

    def learn(self, measured: Measured) -> None:
        """Let this tell samples/s where it knows better than Eq. 1e.

        So a job that was slower with more devices, and went back, never asks for these again.
        """
        if measured == self._measured:
            return
        self._measured = measured
        before = dict(self._perf)
        self._perf.clear()
        if any(self.perf(nums) != perf for nums, perf in before.items()):
            self._proposed.clear()

    def best(self, nums: KindCounts) -> WorkerConfiguration | None:
        """The fastest configuration of these devices."""
        if nums not in self._best:
            self._best[nums] = configure(nums, self.capabilities, self.workers)
        return self._best[nums]

    def perf(self, nums: KindCounts) -> float:
        """Samples/s on these devices; 0 without any."""
        if nums not in self._perf:
            best = self.best(nums)
            measured = None if best is None or self._measured is None else self._measured(nums)
            self._perf[nums] = 0.0 if best is None else best.perf if measured is None else measured
        return self._perf[nums]

    def trimmed(self, nums: KindCounts) -> KindCounts:
        """Leave out devices that add nothing, the slowest kind first."""
        best = self.best(nums)
        if best is None:
            return nums
        room = [m * a for m, a in zip(best.executors, best.threads)]
        spare = sum(n * r for n, r in zip(nums, room)) - self.workers
        kept = list(nums)
        for i in sorted(range(len(nums)), key=lambda i: self.capabilities[i].speed):
            idle = kept[i] if not room[i] else min(kept[i], spare // room[i])
            idle = min(idle, max(0, sum(kept) - self.least))
            kept[i] -= idle
            spare -= idle * room[i]
        found = tuple(kept)
        return found if self.perf(found) >= self.perf(nums) * (1 - _ROUNDING) else nums

    def fall_back(self, nums: KindCounts, before: Mapping[KindCounts, float]) -> KindCounts:
        """Where to go after a slow-down: the fastest that was tried on some of these devices, if that was faster.

        Args:
            before: devices -> samples/s that were seen on them.
        """
        best, rate = nums, before.get(nums, 0.0)
        if not rate:
            return nums
        for other, seen in before.items():
            inside = all(a <= b for a, b in zip(other, nums)) and sum(other) >= self.least
            if inside and seen > rate * (1 + _ROUNDING):
                best, rate = other, seen
        return best

    def proposals(
        self, job: str, held: KindCounts, free: KindCounts, top: int, growth: float = math.inf
    ) -> list[Proposal]:
        """The `top` ways to scale out on more devices of one kind: by speed-up for each device, then by their number.

        Each is faster than what the job has. Devices that add nothing beside the new ones are given back.

        Args:
            free: devices of each kind that it may ask for.
            growth: most times the devices that it has.
        """
        if held not in self._proposed:
            self._proposed[held] = sorted(self._all_proposals(job, held), key=lambda one: one.order)
        more = sum(held) * (growth - 1) + _ROUNDING
        fitting = (one for one in self._proposed[held] if one.count <= min(free[one.kind], more))
        return list(islice(fitting, top))

    def _all_proposals(self, job: str, held: KindCounts) -> Iterator[Proposal]:
        """Those that would be made if all devices were free."""
        now = self.perf(held)
        for i, there in enumerate(self.there if now else ()):
            for count in range(1, min(there, self.most) - held[i] + 1):
                nums = self.trimmed((*held[:i], held[i] + count, *held[i + 1 :]))
                given = nums[i] == held[i] + count and self.least <= sum(nums) <= self.most
                if given and self.perf(nums) > now * (1 + _ROUNDING) and self._worthwhile(nums):
                    yield Proposal(job, i, count, nums, (self.perf(nums) / now - 1) / count)

    def _worthwhile(self, nums: KindCounts) -> bool:
        best = self.best(nums)
        return best is not None and best.waste <= self.max_waste + _ROUNDING
