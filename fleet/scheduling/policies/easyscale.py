"""EasyScale: jobs of a fixed number of virtual workers scale out on whatever is free (Li et al., SC'23, 3.4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from fleet.scheduling.easyscale.companions import (
    ClaimPaces,
    Claims,
    Companions,
    Rules,
    executors_on,
    is_worth_returning,
    is_worth_waiting,
)
from fleet.scheduling.easyscale.intra_job import KindCounts, PlanDatabase, Proposal, approved
from fleet.scheduling.easyscale.service_windows import ServiceWindows
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, Policy, State, check_flag, check_seconds, check_share


class Accelerators:
    """Shows a policy accelerators in place of trainers, and turns its plan back.

    Args:
        state: its cluster says who shares.

    Attributes:
        state: the same by accelerators. One that two jobs share is shown as the first one's; one of which a trainer is
            left still works.
    """

    def __init__(self, state: State) -> None:
        self._trainers, cluster = state, state.cluster
        self._devices = sorted(cluster.sharing, key=lambda devices: (cluster.node_of(devices[0]), devices))
        self._of = {device: number for number, devices in enumerate(self._devices) for device in devices}
        nodes = [cluster.node_of(devices[0]) for devices in self._devices]
        counts = tuple(nodes.count(node) for node in range(cluster.nodes))
        lost = {number for number in range(len(self._devices)) if not self._working(number)}
        self._running = self._held()
        self.state = replace(
            state,
            cluster=Cluster(counts, cluster.kinds),
            running=self._running,
            formed={},
            unavailable=frozenset(lost),
            books=None,
        )

    def plan(self, found: Plan, executors: Callable[[str, tuple[int, ...]], int]) -> Plan:
        """The plan by trainers.

        Args:
            executors: job, its accelerators -> trainers that it has on each; who keeps his accelerators keeps these.
        """
        running, placed = self._trainers.running, dict[str, tuple[int, ...]]()
        for job, numbers in found.allocation.items():
            if self._running.get(job) != numbers or not self._is_whole(job):
                placed[job] = self._taken(numbers, executors(job, numbers))
        uprooted = [job for job in running if job not in self._running and job not in placed]
        hurt = [job for job in self._running if not self._is_whole(job) and job not in (*placed, *found.stopped)]
        placed |= {job: self._taken(self._running[job], executors(job, self._running[job])) for job in hurt}
        return replace(found, allocation=placed, stopped=(*found.stopped, *uprooted))

    def _held(self) -> Mapping[str, tuple[int, ...]]:
        taken: set[int] = set()
        held = {}
        for job, devices in self._trainers.running.items():
            numbers = tuple(sorted({self._of[device] for device in devices}))
            if taken.isdisjoint(numbers):
                held[job] = numbers
                taken.update(numbers)
        return held

    def _is_whole(self, job: str) -> bool:
        """Whether a running job has lost none of its trainers."""
        return self._trainers.unavailable.isdisjoint(self._trainers.running.get(job, ()))

    def _working(self, number: int) -> tuple[int, ...]:
        return tuple(device for device in self._devices[number] if device not in self._trainers.unavailable)

    def _taken(self, numbers: tuple[int, ...], each: int) -> tuple[int, ...]:
        return tuple(sorted(device for number in numbers for device in self._working(number)[:each]))


_ROUNDING = 1e-9


class ElasticRound:
    """The jobs' devices while a plan is made.

    Args:
        state: the state of the run.
        rules: the rules of the policy.

    Attributes:
        companions: the companions of the jobs.
        claims: who may have back what guaranteed jobs have taken from it.
        windows: how far jobs have come with what they are promised.
        dropped: job -> why it can never run.
    """

    def __init__(self, state: State, rules: Rules) -> None:
        self._state, self._rules = state, rules
        self.companions = Companions(state, rules)
        self.claims = Claims(state, self.companions.claims(), rules.patience)
        self.windows = ServiceWindows(state, self.companions.windows())
        self.dropped: dict[str, str] = {}
        self._kinds = self.companions.kinds
        self._all = list(state.cluster.counts().values())
        self._there = self.companions.counts(state.available)  # devices of each kind that work
        self._free = state.free_devices()
        self._barred: set[int] = set()  # kinds that a job waits for
        self._uprooted: set[str] = set()  # jobs that leave what is left of their devices
        self._shrunk: set[str] = set()  # jobs that lose devices to guaranteed ones
        self._patient: set[str] = set()  # jobs that wait for their own devices, with none meanwhile
        self._beyond: set[str] = set()  # guaranteed jobs beyond the quota, which wait in line with the others
        self._floors: dict[str, int] = {}  # devices that nobody takes from jobs now
        self._held: dict[str, list[int]] = {}
        for name in sorted(state.running, key=self._first_placed):
            self._held[name] = self._kept(name)

    @property
    def time(self) -> float:
        """The plan's time, in seconds since the run began."""
        return self._state.time

    def changes(self) -> tuple[dict[str, tuple[int, ...]], tuple[str, ...]]:
        """Who gets other devices than it has, and who stops."""
        running = self._state.running
        held = {name: tuple(sorted(devices)) for name, devices in self._held.items()}
        placed = {name: devices for name, devices in held.items() if devices and devices != running.get(name)}
        return placed, tuple(name for name, devices in held.items() if not devices and name in running)

    def place_guaranteed(self) -> None:
        """Give each guaranteed job that waits its gang: free devices first, then those that elastic jobs miss least.

        Beyond the quota none are taken from elastic jobs.
        """
        for job in [job for job in self._waiting() if job.guaranteed]:
            choices = self._choices(job)
            if not any(job.gang <= sum(self._all[i] for i in kinds) for kinds in choices):
                self.dropped[job.name] = f"it asks for {job.gang} devices{self._of(job)}; there are fewer"
                continue
            if job.gang + sum(self._guaranteed()) > math.floor(self._rules.quota * sum(self._all) + _ROUNDING):
                choices = [kinds for kinds in choices if sum(self._free_of(i) for i in kinds) >= job.gang]
                self._beyond.update([] if choices else [job.name])
            for kinds in choices:
                before = {name: set(devices) for name, devices in self._held.items()}
                if self._make_room(job.gang, kinds):
                    self._held[job.name] = self._taken(job.gang, kinds, self._free_of)
                    self._note_losses(before)
                    break

    def serve(self) -> None:
        """Give jobs the devices that they need to have what their service level promises for this window.

        They take free devices first, and then those that others miss least: of a job that is promised something, too,
        only what it does not need itself. Those who cannot wait any longer take from those who can. Jobs whose
        promises come to more devices than there are, the less important ones, have what all these leave.
        """
        most = {job.name: self._most(job) for job in self.windows.jobs}
        laxity = {name: self.windows.laxity(name, count) for name, count in most.items()}
        covered, beyond = self._covered()
        urgent = [job for job in covered if not laxity[job.name]]
        for job in urgent:
            self._floors[job.name] = self._due(job)  # those after it may take none of that
            self._widen_for_service(job)
        self._floors = {job.name: self._due(job) for job in covered}
        for job in sorted((job for job in covered if laxity[job.name]), key=lambda job: laxity[job.name]):
            self._widen_for_service(job)
        for job in beyond:
            self._floors[job.name] = self._due(job)
            self._widen_for_service(job)
        self._floors = {}
        self.windows.settle(most)

    @property
    def next_service(self) -> float:
        """When to look at what is promised again, seconds since the run began."""
        held = {name: len(devices) for name, devices in self._held.items()}
        return self.windows.next_look(held, {job.name: self._most(job) for job in self.windows.jobs})

    def fall_back(self) -> None:
        """Let jobs that are slower than they were on fewer devices have these alone, unless they are promised more."""
        for name in list(self._held):
            job = self._state.by_name[name]
            if not job.guaranteed and self._held[name]:
                fewer = self.companions.fall_back(job, self._counts(name))
                self._shrink(name, fewer if sum(fewer) >= self.windows.due(name) else self._counts(name))

    def give_back(self) -> None:
        """Let jobs have what guaranteed jobs took from them, or wait for it where that costs them least."""
        for name in sorted(self.claims.of, key=self._first_placed):
            back = self._spare([device for device in self.claims.of[name].devices if device in self._free])
            if self._held.get(name):
                self._widen(name, back)
            elif len(self.claims.of[name].devices) < self.companions.least(self._state.by_name[name]):
                continue
            elif len(back) == len(self.claims.of[name].devices):
                self._free.remove(back)
                self._held[name] = back
                self._uprooted.discard(name)
                self.claims.returned(name, back)
            elif self._waits_for_all(name):
                self._free.remove(back)
                self._patient.add(name)

    def start(self) -> None:
        """Give each waiting job its first devices, in the order of their arrival; none overtakes on a kind.

        One for which too few devices work holds nobody up.
        """
        line = [job for job in self._waiting() if not job.guaranteed or job.name in self._beyond]
        for job in line:
            if job.name in self._patient:
                continue
            database = self.companions.of(job)
            kinds = [i for i in self._fastest_first(database) if i not in self._barred]
            if database.least > min(sum(database.there), database.most):
                self.dropped[job.name] = f"it asks for {database.least} devices or more{self._of(job)}; there are fewer"
            elif sum(self._spare_of(i) for i in kinds) >= database.least:
                self._held[job.name] = self._taken(database.least, kinds, self._spare_of)
            elif sum(self._there[i] for i, there in enumerate(database.there) if there) >= database.least:
                self._barred.update(kinds)

    def grow(self) -> None:
        """Algorithm 1, until no job can use the devices that are left; a single time where growth is bounded."""
        begun = set(self._held).difference(self._state.running)
        while accepted := approved(self._proposals(begun), self._left()):
            for proposal in accepted:
                self._accept(proposal)
            if self._rules.growth:
                return

    def _waiting(self) -> list[JobState]:
        """The jobs that hold nothing, or too little since they lost some of it, the first of the line first."""
        names = [*(job.name for job in self._state.waiting), *self._uprooted]
        jobs = [self._state.by_name[name] for name in names if not self._held.get(name)]
        return sorted(jobs, key=lambda job: (-job.priority, job.arrival, job.name))

    def _kept(self, name: str) -> list[int]:
        """What a running job has left of its devices; none where too few work to go on with them."""
        devices = self._state.running[name]
        left = [device for device in devices if device not in self._state.unavailable]
        if len(left) == len(devices) or len(left) >= self.companions.least(self._state.by_name[name]):
            return left
        self._free.give(left)
        self._uprooted.add(name)
        return []

    def _proposals(self, begun: set[str]) -> list[Proposal]:
        left, growth = self._left(), self._rules.growth or math.inf
        found: list[Proposal] = []
        for name, devices in self._held.items():
            job = self._state.by_name[name]
            if devices and not job.guaranteed and not (growth < math.inf and name in begun):
                database = self.companions.of(job)
                held = self._counts(name)
                proposals = database.proposals(name, held, left, self._rules.top_k, growth)
                found += [one for one in proposals if not self._waits(name, one.nums)]
        return found

    def _waits(self, name: str, other: KindCounts) -> bool:
        """Whether the job should rather wait for what it claims than have these devices instead."""
        if name not in self.claims.of:
            return False
        perf, held = self.companions.of(self._state.by_name[name]).perf, self._held.get(name, [])
        paces = ClaimPaces(perf(self._counts(name)), perf(other), perf(self.companions.counts(self._whole(name))))
        leaves = name in self._shrunk or not held
        return is_worth_waiting(paces, self._seconds(name), self._state.by_name[name].restart, leaves)

    def _waits_for_all(self, name: str) -> bool:
        """Whether a job that holds nothing waits for its own devices: there are no equal ones, and elsewhere its group
        would train for less time than it takes to form one.
        """
        claimed = self.companions.counts(self.claims.of[name].devices)
        equal = all(self._spare_of(i) >= count for i, count in enumerate(claimed))
        return not equal and self._seconds(name) <= 2 * self._state.by_name[name].restart

    def _widen(self, name: str, back: list[int]) -> None:
        """Let a job have these devices beside its own if that pays."""
        job, database = self._state.by_name[name], self.companions.of(self._state.by_name[name])
        whole = sorted({*self._held[name], *back})
        nums = database.trimmed(self.companions.counts(whole))
        left = job.remaining_at(self._state.time)
        paces = database.perf(self._counts(name)), database.perf(nums)
        part = len(back) < len(self.claims.of[name].devices) and self._waits(name, nums)
        restart = 0.0 if name in self._shrunk else job.restart  # else it forms a new group in any case
        if back and sum(nums) <= database.most and not part and is_worth_returning(*paces, left, restart):
            self._free.remove(back)
            self._held[name] = whole
            self._shrink(name, nums)
            self.claims.returned(name, back)

    def _spare(self, devices: list[int]) -> list[int]:
        """Those of these free devices that are not kept free for guaranteed jobs, the first ones."""
        kinds = [self._kinds.index(self._state.cluster.kind_of(device)) for device in devices]
        return [
            device
            for place, (device, kind) in enumerate(zip(devices, kinds))
            if kinds[:place].count(kind) < self._spare_of(kind)
        ]

    def _whole(self, name: str) -> list[int]:
        """What a job holds and claims."""
        return sorted({*self._held.get(name, ()), *self.claims.of[name].devices})

    def _seconds(self, name: str) -> float:
        return self.claims.seconds(name, {job: tuple(devices) for job, devices in self._held.items()})

    def _note_losses(self, before: Mapping[str, set[int]]) -> None:
        """Jobs have lost devices to a guaranteed job that has just got its gang."""
        for name, devices in before.items():
            lost = devices.difference(self._held[name])
            if lost and not self._state.by_name[name].guaranteed:
                self.claims.lost(name, lost)
                self._shrunk.add(name)
                if not self._held[name]:
                    self._uprooted.add(name)

    def _accept(self, proposal: Proposal) -> None:
        more = self._free.take(proposal.count, self._kinds[proposal.kind])
        assert more is not None, "Algorithm 1 counts what is free"
        self._held[proposal.job] += more
        self._shrink(proposal.job, proposal.nums)

    def _make_room(self, count: int, kinds: list[int]) -> bool:
        """Have so many free devices of these kinds; False, and nothing changed, if that cannot be."""
        elastic = [name for name in self._held if not self._state.by_name[name].guaranteed]
        if sum(self._free_of(i) for i in kinds) + sum(self._spared(name, kinds) for name in elastic) < count:
            return False
        while sum(self._free_of(i) for i in kinds) < count:
            self._scale_in(elastic, kinds)
        return True

    def _scale_in(self, elastic: list[str], kinds: list[int]) -> None:
        """Take one device from the job that loses least of its speed; a whole job where all have their least."""
        losses = [
            (loss, self._last_first(name), name, i)
            for name in elastic
            for i in kinds
            if (loss := self._loss(name, i)) is not None
        ]
        if not losses:
            whole = [name for name in elastic if not self._floors.get(name)]
            name = min((name for name in whole if any(self._counts(name)[i] for i in kinds)), key=self._last_first)
            self._shrink(name, (0,) * len(self._kinds))
            return
        _, _, name, i = min(losses)
        held = self._counts(name)
        fewer = (*held[:i], held[i] - 1, *held[i + 1 :])
        self._shrink(name, self.companions.of(self._state.by_name[name]).trimmed(fewer))

    def _loss(self, name: str, kind: int) -> float | None:
        """The part of its speed that a job loses with a device of that kind; None: it has none to give."""
        held = self._counts(name)
        database = self.companions.of(self._state.by_name[name])
        if not held[kind] or sum(held) <= max(database.least, self._floors.get(name, 0)):
            return None
        return round(1 - database.perf((*held[:kind], held[kind] - 1, *held[kind + 1 :])) / database.perf(held), 9)

    def _spared(self, name: str, kinds: list[int]) -> int:
        """Devices of these kinds that can be taken from a job; all of them where it need not keep any."""
        held, floor = self._counts(name), self._floors.get(name, 0)
        least = max(floor, self.companions.of(self._state.by_name[name]).least) if floor else 0
        return min(sum(held[i] for i in kinds), max(0, sum(held) - least))

    def _due(self, job: JobState) -> int:
        """The devices that a job needs now, no more than it can have."""
        due = self.windows.due(job.name)
        return min(max(due, self.companions.least(job)), self._most(job)) if due else 0

    def _most(self, job: JobState) -> int:
        """Devices that a job could have if there were no other."""
        database = self.companions.of(job)
        return min(database.most, sum(self._there[i] for i, there in enumerate(database.there) if there))

    def _covered(self) -> tuple[list[JobState], list[JobState]]:
        """The jobs whose promises can all be kept beside guaranteed jobs, the more important first; and the others."""
        left = sum(self._there) - sum(self._guaranteed()) + _ROUNDING
        covered, beyond = list[JobState](), list[JobState]()
        for job in self.windows.jobs:
            promised = 0.0 if job.service_level is None else job.service_level.devices
            (covered if promised <= left else beyond).append(job)
            left -= promised if promised <= left else 0.0
        return covered, beyond

    def _widen_for_service(self, job: JobState) -> None:
        """Give a job as many more devices as can be had, up to those that are due; none if it has too few then."""
        held, due = len(self._held.get(job.name, ())), self._due(job)
        kinds = self._fastest_first(self.companions.of(job))
        before = [name for name, devices in self._held.items() if devices]
        for count in range(due - held, max(1, self.companions.least(job) - held) - 1, -1):
            if self._make_room(count, kinds):
                self._held[job.name] = [*self._held.get(job.name, ()), *self._taken(count, kinds, self._free_of)]
                self._uprooted.discard(job.name)
                break
        self._uprooted.update(name for name in before if not self._held[name])

    def _first_placed(self, name: str) -> tuple[float, float, str]:
        """Whose proposals are named first: those of the job that has held its devices for longest."""
        job = self._state.by_name[name]
        return job.since, job.arrival, name

    def _last_first(self, name: str) -> tuple[float, float, str]:
        """Who goes first when jobs have to stop: the least important, then the last that came."""
        job = self._state.by_name[name]
        return job.priority, -job.arrival, name

    def _shrink(self, name: str, nums: KindCounts) -> None:
        """Let a job keep so many devices of each kind, on as few nodes as possible."""
        if nums == self._counts(name):
            return
        cluster = self._state.cluster
        for kind, keep in zip(self._kinds, nums):
            own = [device for device in self._held[name] if cluster.kind_of(device) == kind]
            on = {device: cluster.node_of(device) for device in own}
            alike = {node: list(on.values()).count(node) for node in on.values()}
            freed = sorted(own, key=lambda device: (-alike[on[device]], device))[keep:]
            self._held[name] = [device for device in self._held[name] if device not in freed]
            self._free.give(freed)

    def _taken(self, count: int, kinds: list[int], there: Callable[[int], int]) -> list[int]:
        """So many free devices, of the first of these kinds as long as `there` counts any."""
        found: list[int] = []
        for i in kinds:
            wanted = min(count - len(found), there(i))
            if wanted:
                found += self._free.take(wanted, self._kinds[i]) or ()
        return found

    def _choices(self, job: JobState) -> list[list[int]]:
        """The kinds that a guaranteed job may have together, best first; a gang of one kind before a mixed one."""
        order = sorted(range(len(self._kinds)), key=lambda i: (self._kinds[i] != job.kind, -self._free_of(i)))
        if job.kind in self._kinds and not job.mixed_kinds:
            order = order[:1]
        return [[i] for i in order] + ([order] if job.mixed_kinds and len(order) > 1 else [])

    def _fastest_first(self, database: PlanDatabase) -> list[int]:
        kinds = [i for i, there in enumerate(database.there) if there]
        return sorted(kinds, key=lambda i: -database.capabilities[i].speed)

    def _counts(self, name: str) -> KindCounts:
        return self.companions.counts(self._held[name])

    def _free_of(self, kind: int) -> int:
        return self._free.of_kind(self._kinds[kind]) if self._kinds[kind] else self._free.count

    def _left(self) -> KindCounts:
        """Free devices of each kind that may be proposed."""
        return tuple(0 if i in self._barred else self._spare_of(i) for i in range(len(self._kinds)))

    def _spare_of(self, kind: int) -> int:
        """Free devices of a kind that are not kept free for guaranteed jobs."""
        kept = math.ceil(self._rules.headroom * self._all[kind] - _ROUNDING) - self._guaranteed()[kind]
        return max(0, self._free_of(kind) - max(0, kept))

    def _guaranteed(self) -> KindCounts:
        """Devices of each kind that guaranteed jobs hold."""
        held = [devices for name, devices in self._held.items() if self._state.by_name[name].guaranteed]
        return self.companions.counts([device for devices in held for device in devices])

    def _of(self, job: JobState) -> str:
        return f" of kind {job.kind}" if job.kind in self._kinds and not job.mixed_kinds else ""


_LOOK = 60.0  # seconds after which a change is looked at, where plans have no interval of their own


@dataclass(frozen=True)
class EasyScale(Rules, Policy):
    """Waiting jobs get a device in turn; spare devices go to the proposals that bring most for each device.

    A job has maxP virtual workers (`limit`) on any number of devices from minP on. It proposes to have more of one kind
    (`PlanDatabase`); Algorithm 1 chooses among the proposals (`approved`), again and again until no device is left that
    helps. A running job is scaled in only for one that lacks devices of its service level, and for a guaranteed one,
    which gets its gang in the same plan: the elastic jobs give up the devices that they miss least, and have first call
    on those that guaranteed jobs took for some time. What these leave is filled up again at the next plan.
    A job that turns out slower on more devices than it was goes back to those that it had.

    Args:
        heterogeneous: whether jobs that may (`mixed_kinds`) use devices of several kinds at once. The others stay on
            one kind for good, as their results would change with it: the preferred one.
        min_share: minP as a part of the job's gang; 0: one device will do; 1: gangs.
        top_k: proposals of a job in a round.
        waste: most of its devices' speed that a proposed configuration may lose (Eq. 1d); above 0, at most 1.
        growth: most times its devices that a job gets from one plan; then a plan has one round, as in the authors'
            simulator, where it is 2. 0: as many as help.
        interval: seconds between plans, 60 in the authors' simulator; guaranteed jobs do not wait for it. 0: plan at
            each event.
        executors: the most executors of a job on a device, or kind of device -> the most there, and 1 elsewhere. Where
            trainers share accelerators, each accelerator is one job's then, with as many trainers as are fastest.
        interference: the part of its speed that an executor keeps beside others on its device.
        patience: seconds for which a job has first call on the devices that a guaranteed job took from it, and may wait
            for them; 0: none.
        quota: the part of the devices that guaranteed jobs may hold together by taking some from others (5.3:
            "high-priority with guaranteed quota"); beyond it they wait in line for free ones.
        headroom: the part of the devices of each kind that other jobs leave free for guaranteed ones, which so begin
            without waiting until somebody has left; what guaranteed jobs hold is counted. At most the quota.

    Raises:
        ValueError: a parameter out of its range.
    """

    name: ClassVar[str] = "easyscale"
    knows_kinds: ClassVar[bool] = True
    keeps_minimum: ClassVar[bool] = True
    keeps_service_levels: ClassVar[bool] = True

    interval: float = 0.0

    def __post_init__(self) -> None:
        check_flag("heterogeneous", self.heterogeneous)
        check_share("waste", self.waste)
        check_share("interference", self.interference)
        check_share("quota", self.quota)
        if isinstance(self.headroom, bool) or not 0 <= self.headroom <= self.quota:
            raise ValueError(f"headroom is {self.headroom}; it must be 0 (none) to the quota, {self.quota}")
        if not 0 <= self.min_share <= 1:
            raise ValueError(f"min_share is {self.min_share}; it must be 0 (one device will do) to 1 (gangs)")
        if self.top_k != int(self.top_k) or self.top_k < 1:
            raise ValueError(f"top_k is {self.top_k}; a job makes at least one proposal")
        if self.growth and not 1 < self.growth < math.inf:
            raise ValueError(f"growth is {self.growth}; it must be above 1, such as 2, or 0 for no bound")
        check_seconds("interval", self.interval)
        check_seconds("patience", self.patience)
        each = (
            self.executors
            if isinstance(self.executors, Mapping)
            else {"": 1 if self.executors is None else self.executors}
        )
        for kind, most in each.items():
            if isinstance(most, bool) or most != int(most) or most < 1:
                raise ValueError(f"executors{kind and f' on {kind}'} is {most}; it must be 1 or more")

    @property
    def most_executors(self) -> int:
        """On devices that are alike."""
        return executors_on(self, "")

    def plan(self, state: State) -> Plan:
        """Guaranteed jobs first; then who was faster before, who waits, and who would grow."""
        if not (self.executors and state.cluster.sharing):
            return self._planned(ElasticRound(state, self))
        whole, known = Accelerators(state), any(job.executor_rates for job in state.by_name.values())
        one = ElasticRound(whole.state, self if known else replace(self, executors=None))
        return whole.plan(self._planned(one), one.companions.executors)

    def _planned(self, one: ElasticRound) -> Plan:
        one.place_guaranteed()
        one.serve()
        one.fall_back()
        one.give_back()
        one.start()
        one.grow()
        placed, stopped = one.changes()
        return Plan(
            placed,
            others_go_on=True,
            stopped=stopped,
            dropped=one.dropped,
            memo=one.companions.memo,
            wake=min(self._lapse(one.claims), self._look(one.time) if placed else math.inf, one.next_service),
            promises=one.companions.promises(one.claims.changed, one.windows.changed),
            windows=tuple(one.windows.over),
        )

    def _lapse(self, claims: Claims) -> float:
        """When to see who need not wait any more."""
        return self.trigger.due(claims.next_lapse, 1) if claims.of else math.inf

    def _look(self, time: float) -> float:
        """When to see whether changes have helped, and what else to change."""
        if not self.interval:
            return time + _LOOK
        return self.trigger.next_end(time)
