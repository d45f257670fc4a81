"""Each job's companion: its plan database, the speeds that were seen, its claims (EasyScale, SC'23, 3.4.2)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fleet.scheduling.easyscale.intra_job import Capability, KindCounts, Measured, PlanDatabase
from fleet.scheduling.easyscale.kind_curves import each_of, kept_speed
from fleet.scheduling.easyscale.service_windows import OpenWindow
from fleet.scheduling.model.jobs import JobState, Scaling
from fleet.scheduling.model.policy import Allocation, State
from fleet.scheduling.model.rates import RateCurve

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Claim:
    """A job has first call on these devices until a time-out, seconds since the run began."""

    devices: tuple[int, ...]
    until: float


@dataclass(frozen=True)
class ClaimPaces:
    """Samples/s of a job: on what it holds, on what it could have instead, and on all that it had before."""

    held: float
    other: float
    whole: float


class Claims:
    """The claims of a state's jobs while a plan is made.

    "The cluster scheduler will try to allocate the same GPUs as preempted ones to elastic jobs. When timeout, the
    EasyScale job fallbacks to utilizing the available GPUs it currently owns" (3.4.2).

    Args:
        state: the state of the run.
        before: job -> its claim, as the plan before left it.
        patience: seconds after which a claim lapses; 0: there are none.
    """

    def __init__(self, state: State, before: Mapping[str, Claim], patience: float) -> None:
        self._state, self._patience, self._before = state, patience, before
        holders = {device: name for name, devices in state.running.items() for device in devices}
        self.of: dict[str, Claim] = {}
        for name, claim in before.items():
            left = tuple(device for device in claim.devices if self._may_return(name, device, holders.get(device)))
            if name in state.by_name and left and claim.until > state.time:
                self.of[name] = replace(claim, devices=left)

    @property
    def changed(self) -> dict[str, Claim | None]:
        """Job -> its claim, where that is another than before; None: it has none any more."""
        names = (name for name in {**self._before, **self.of} if name in self._state.by_name)
        return {name: self.of.get(name) for name in names if self.of.get(name) != self._before.get(name)}

    @property
    def next_lapse(self) -> float:
        """When the first claim lapses; infinite: there is none."""
        return min((claim.until for claim in self.of.values()), default=math.inf)

    def lost(self, name: str, devices: Collection[int]) -> None:
        """Guaranteed jobs have taken these devices from a job."""
        if self._patience:
            earlier = self.of[name].devices if name in self.of else ()
            until = self._state.time + self._patience
            self.of[name] = Claim(tuple(sorted({*earlier, *devices})), until)

    def returned(self, name: str, devices: Collection[int]) -> None:
        """A job has these devices again."""
        left = tuple(device for device in self.of[name].devices if device not in devices)
        self.of[name] = replace(self.of[name], devices=left)
        if not left:
            del self.of[name]

    def seconds(self, name: str, allocation: Allocation) -> float:
        """How long until no guaranteed job holds what a job claims; infinite where the claim lapses before.

        Args:
            allocation: who holds what from now on.
        """
        claimed, now = set(self.of[name].devices), self._state.time
        takers = [self._state.by_name[job] for job, held in allocation.items() if not claimed.isdisjoint(held)]
        ends = [self._left(job, allocation[job.name]) for job in takers if job.guaranteed]
        longest = max(ends, default=0.0)
        return longest if now + longest <= self.of[name].until else math.inf

    def _left(self, job: JobState, devices: Collection[int]) -> float:
        """Seconds until a guaranteed job is done on these devices."""
        now = self._state.time
        if tuple(sorted(devices)) == self._state.running.get(job.name) and job.pace:
            return max(0.0, job.ready - now) + job.remaining_at(now) / job.pace
        return job.restart + job.remaining / job.rate(len(devices))

    def _may_return(self, name: str, device: int, holder: str | None) -> bool:
        """Whether the device may still come back: nobody who keeps it has it."""
        if device in self._state.unavailable:
            return False
        job = None if holder in (None, name) else self._state.by_name.get(str(holder))
        return holder is None or (job is not None and job.guaranteed)


def is_worth_waiting(paces: ClaimPaces, seconds: float, restart: float, leaves: bool) -> bool:
    """Whether a job trains more if it waits for its devices than if it goes to others meanwhile.

    The devices come back after T seconds, and forming a group takes c. Until then the job trains p_held T samples
    where it is, or p_other (T - c) elsewhere; to go back takes c in either case. Others on which it is as fast as it
    was are as good as its own.

    Args:
        seconds: T.
        restart: c.
        leaves: it forms a new group now in any case, as it has lost devices: it trains p_held (T - c) where it is.
    """
    if seconds == math.inf or paces.other >= paces.whole * (1 - _ROUNDING):
        return False
    begun = max(0.0, seconds - restart)
    return paces.other * begun <= paces.held * (begun if leaves else seconds) * (1 + _ROUNDING)


def is_worth_returning(before: float, after: float, left: float, restart: float) -> bool:
    """Whether a job with so many samples left is done sooner if it forms a new group that trains `after` samples/s."""
    if not before:
        return after > 0
    if left == math.inf:
        return after > before * (1 + _ROUNDING)
    return restart + left / after < left / before * (1 - _ROUNDING)


_NOISE = 1e-6  # speeds that differ by less, as a part, are the same


@dataclass(frozen=True)
class Rules:
    """What the policy sets, see `EasyScale`."""

    heterogeneous: bool = True
    min_share: float = 0.0
    top_k: int = 3
    waste: float = 0.3
    growth: float = 0.0
    executors: Mapping[str, int] | int | None = None
    interference: float = 1.0
    patience: float = 300.0
    quota: float = 1.0
    headroom: float = 0.0


def executors_on(rules: Rules, kind: str) -> int:
    """The most executors of a job on a device of that kind."""
    if isinstance(rules.executors, Mapping):
        return rules.executors.get(kind, 1)
    return rules.executors or 1


class KeptOfJob(NamedTuple):
    """What the driver keeps of a job from plan to plan: devices -> samples/s that were seen there, its claim, and the
    window of its service level.
    """

    seen: Mapping[KindCounts, float]
    claim: Claim | None = None
    window: OpenWindow | None = None


class _Kept(NamedTuple):
    rate: RateCurve
    scaling: Scaling | None
    executor_rates: tuple[float, ...]
    database: PlanDatabase


class Companions:
    """The plan databases of the jobs of a state; the last plan's are used again where nothing has changed.

    Args:
        state: the state of the run.
        rules: the rules of the policy.

    Attributes:
        kinds: kinds of device, in the order of the nodes; every `KindCounts` has a number for each.
        memo: what the next plan may use again.
        seen_anew: job -> devices -> samples/s, where something was seen that the last promise does not say.
    """

    def __init__(self, state: State, rules: Rules) -> None:
        self._state, self._rules = state, rules
        self._there = state.cluster.counts()
        self._known: dict[str, _Kept] = state.memo if isinstance(state.memo, dict) else {}
        self.kinds = list(self._there)
        self.memo: dict[str, _Kept] = {}
        self.seen_anew: dict[str, Mapping[KindCounts, float]] = {}
        for name, devices in state.running.items():
            if name in state.by_name and state.unavailable.isdisjoint(devices):
                self._look(state.by_name[name], self.counts(devices))

    def counts(self, devices: list[int] | tuple[int, ...]) -> KindCounts:
        """How many of these devices are of each kind."""
        if len(self.kinds) == 1:
            return (len(devices),)
        kinds = [self._state.cluster.kind_of(device) for device in devices]
        return tuple(kinds.count(kind) for kind in self.kinds)

    def seen(self, name: str) -> Mapping[KindCounts, float]:
        """Devices -> samples/s that were seen on them."""
        return self.seen_anew.get(name) or self._kept(name).seen

    def claims(self) -> dict[str, Claim]:
        """The claims of the jobs, as the last plan left them."""
        found = {name: self._kept(name).claim for name in self._state.promises}
        return {name: claim for name, claim in found.items() if claim is not None}

    def windows(self) -> dict[str, OpenWindow]:
        """The windows of the jobs that are promised a service level, as the last plan left them."""
        found = {name: self._kept(name).window for name in self._state.promises}
        return {name: window for name, window in found.items() if window is not None}

    def promises(self, claims: Mapping[str, Claim | None], windows: Mapping[str, OpenWindow]) -> dict[str, KeptOfJob]:
        """What the driver is to keep from now on, of the jobs of which that is new.

        Args:
            claims: job -> its claim, where that is new.
            windows: job -> its window, where that is new.
        """
        names, kept = dict.fromkeys((*self.seen_anew, *claims, *windows)), self._kept
        return {
            name: KeptOfJob(self.seen(name), claims.get(name, kept(name).claim), windows.get(name, kept(name).window))
            for name in names
        }

    def fall_back(self, job: JobState, held: KindCounts) -> KindCounts:
        """The devices on which the job was faster than on all that it holds; all if there are none.

        Devices of one kind without speeds by kind: what the rate curve has learnt tells the same.
        """
        if self._by_curve(job) and len(held) == 1 and not job.executor_rates:
            return (min(held[0], max(job.rate.peak(held[0]), self.least(job))),)
        return self.of(job).fall_back(held, self.seen(job.name))

    def least(self, job: JobState) -> int:
        """minP: a job has so many devices or none, and a guaranteed one its gang."""
        share = 1.0 if job.guaranteed else self._rules.min_share
        return max(job.minimum_devices, math.ceil(share * job.gang))

    def of(self, job: JobState) -> PlanDatabase:
        """The configurations of that job."""
        if job.name not in self.memo:
            before = self._known.get(job.name)
            known = (job.rate, job.scaling, job.executor_rates)
            if before is None or any(a is not b for a, b in zip(before, known)):
                before = _Kept(*known, self._new(job))
            self.memo[job.name] = before
            before.database.learn(self._measured(job))
        return self.memo[job.name].database

    def executors(self, name: str, devices: tuple[int, ...]) -> int:
        """How many executors a job has on each of these devices, all of one kind: one where it is guaranteed or
        nobody knows how fast several are.
        """
        job = self._state.by_name[name]
        best = None if job.guaranteed or not job.executor_rates else self.of(job).best(self.counts(devices))
        return 1 if best is None else max(best.executors)

    def _kept(self, name: str) -> KeptOfJob:
        found: KeptOfJob = self._state.promises.get(name) or KeptOfJob({})
        return found

    def _look(self, job: JobState, held: KindCounts) -> None:
        before = self.seen(job.name)
        if job.pace > 0 and not job.guaranteed and abs(before.get(held, 0.0) - job.pace) > _NOISE * job.pace:
            self.seen_anew[job.name] = {**before, held: job.pace}

    def _new(self, job: JobState) -> PlanDatabase:
        rules = self._rules
        speeds = [self._speed(job, kind) for kind in self.kinds]
        workers = job.rate.workers or job.limit
        each = each_of(job.executor_rates, workers)
        return PlanDatabase(
            tuple(
                Capability(speed, self._most_executors(job, kind), rules.interference, each)
                for kind, speed in zip(self.kinds, speeds)
            ),
            workers,
            least=self.least(job),
            most=min(workers, job.limit),
            there=self._usable(job, speeds),
            max_waste=rules.waste,
        )

    def _most_executors(self, job: JobState, kind: str) -> int:
        """As many as the rules let it have there, and were measured where any were."""
        most = executors_on(self._rules, kind)
        return min(most, len(job.executor_rates)) if job.executor_rates else most

    def _speed(self, job: JobState, kind: str) -> float:
        """C_i, samples/s of one device."""
        if job.executor_rates:
            return each_of(job.executor_rates, job.rate.workers or job.limit)[0]
        if self._by_curve(job) or job.scaling is None:
            return job.rate(1)
        return job.scaling.worker_rate(kind) * (job.batch or 1) / (job.rate.workers or job.limit)

    def _usable(self, job: JobState, speeds: list[float]) -> KindCounts:
        """All devices, or the kind on which the job stays for good: the kind that it prefers, or the strongest
        of those with enough devices.
        """
        there = tuple(self._there.values())
        if self._rules.heterogeneous and job.mixed_kinds:
            return there
        enough = [count >= self.least(job) for count in there]
        strength = [(fits, speed * count) for fits, speed, count in zip(enough, speeds, there)]
        home = self.kinds.index(job.kind) if job.kind in self.kinds else strength.index(max(strength))
        return tuple(count if i == home else 0 for i, count in enumerate(there))

    def _measured(self, job: JobState) -> Measured:
        if job.executor_rates:
            return _Together(self.seen(job.name), self.memo[job.name].database, job.rate, job.limit)
        return _Measured(self.seen(job.name), job.rate if self._by_curve(job) else None)

    def _by_curve(self, job: JobState) -> bool:
        return job.scaling is None or self.kinds == [""]


@dataclass(frozen=True)
class _Measured:
    """The speed seen on devices, or else the job's rate curve where there is nothing better."""

    seen: Mapping[KindCounts, float]
    curve: RateCurve | None

    def __call__(self, nums: KindCounts) -> float | None:
        found = self.seen.get(nums)
        return self.curve(sum(nums)) if found is None and self.curve is not None else found


@dataclass(frozen=True)
class _Together:
    """The speed seen on accelerators, or else what Eq. 1e tells of a job's executors there, less what sums take."""

    seen: Mapping[KindCounts, float]
    database: PlanDatabase = field(compare=False)
    curve: RateCurve
    workers: int

    def __call__(self, nums: KindCounts) -> float | None:
        found, best = self.seen.get(nums), self.database.best(nums)
        if found is not None or best is None:
            return found
        return best.perf * kept_speed(self.curve, self.workers, sum(nums))
