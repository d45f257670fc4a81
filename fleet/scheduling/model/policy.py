"""What a policy is: it is asked by its trigger, told a `State`, and answers with a `Plan`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar

from fleet.scheduling.model.cluster import Cluster, FreeDevices
from fleet.scheduling.model.jobs import JobState, ServiceWindow

_ROUNDING = 1e-9  # of an interval: so much before its end counts as its end


def last_multiple(interval: float, now: float) -> float:
    """The last multiple of `interval` that is not after `now`."""
    return math.floor(now / interval + _ROUNDING) * interval


@dataclass(frozen=True)
class Trigger:
    """Ask at each event, or at the ends of intervals, or sooner once enough has happened.

    Args:
        interval: seconds; events wait for the next multiple of it, counted from the run's begin. 0: none waits.
        events: with an interval, ask at once when so many events wait (Saxena et al., 2020: hybrid
            trigger); 0: never.

    Raises:
        ValueError: a negative number.
    """

    interval: float = 0.0
    events: int = 0

    def __post_init__(self) -> None:
        if not self.interval >= 0 or not self.events >= 0:
            raise ValueError(f"interval is {self.interval} s and events is {self.events}; both must be 0 or more")

    def due(self, now: float, waiting: int, urgent: bool = False) -> float:
        """When to ask next, where `waiting` events have happened since the last time, the latest now.

        Args:
            urgent: one of them is the arrival of a guaranteed job, which does not wait.
        """
        if not waiting:
            return math.inf
        if not self.interval or urgent or (self.events and waiting >= self.events):
            return now
        return math.ceil(now / self.interval - _ROUNDING) * self.interval

    def next_end(self, now: float) -> float:
        """The end of the interval in which `now` lies, or of the next where one ends now. There is an interval."""
        return (math.floor(now / self.interval + _ROUNDING) + 1) * self.interval


Allocation = Mapping[str, tuple[int, ...]]
"""Job -> the devices that it should have from now on, ascending; the first is the group's master."""


@dataclass(frozen=True)
class State:
    """The whole of what a policy may know.

    Attributes:
        cluster: the machine.
        by_name: the unfinished jobs, in spec order or by arrival. These are the driver's own books: read them now,
            and never keep them.
        running: job -> devices that it holds now, also while it has been asked to stop; the driver's own books, too.
        formed: the allocation with which the current round began; may name jobs that are finished by now.
        unavailable: devices that nobody can be given.
        seed: root of every random draw.
        time: seconds since the run began.
        changed: jobs that came, ended or stopped since the plan that left `memo`, whose rates are others now, or that
            have got less far than they should have.
        memo: the last plan's memo, see `Plan`; None: there is none, or more has changed than `changed` says.
        promises: job -> what the policy promised it last, see `Plan`; the driver's own books, too.
        margin: seconds that promised deadlines leave in case plans, messages or steps are late; 0 if they never are.
        refined: jobs whose rates were guessed, or not known for that many devices, when the current round began, and
            that training has told since.
        costs: kind -> what a device of it costs, in units of what it brings, see `WithinPrices`; empty: nothing.
    """

    cluster: Cluster
    by_name: Mapping[str, JobState]
    running: Allocation = field(default_factory=dict)
    formed: Allocation = field(default_factory=dict)
    unavailable: frozenset[int] = frozenset()
    seed: int = 0
    time: float = 0.0
    changed: tuple[str, ...] = ()
    memo: Any = None
    books: FreeDevices | None = None
    promises: Mapping[str, Any] = field(default_factory=dict)
    margin: float = 0.0
    refined: frozenset[str] = frozenset()
    costs: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, cluster: Cluster, jobs: Sequence[JobState], *others: Any, **more: Any) -> State:
        """A state of these jobs, checked; the other arguments are the class's.

        Raises:
            ValueError: two jobs of one name, a running job that is not unfinished, or a device held twice or not there.
        """
        by_name = {job.name: job for job in jobs}
        if len(by_name) < len(jobs):
            name, times = Counter(job.name for job in jobs).most_common(1)[0]
            raise ValueError(f"job names must differ, but {name!r} occurs {times} times")
        state = cls(cluster, by_name, *others, **more)
        _check_devices(state.running, by_name, cluster.size, "running")
        return state

    @cached_property
    def jobs(self) -> tuple[JobState, ...]:
        """The unfinished jobs."""
        return tuple(self.by_name.values())

    @property
    def staying(self) -> dict[str, tuple[int, ...]]:
        """The running jobs that have lost no device, in the order of the jobs."""
        running, lost = self.running, self.unavailable
        staying = {name: running[name] for name in self.by_name if name in running}
        return {name: held for name, held in staying.items() if lost.isdisjoint(held)} if lost else staying

    @property
    def waiting(self) -> list[JobState]:
        """The jobs that hold no device, in their order."""
        return [job for name, job in self.by_name.items() if name not in self.running]

    @property
    def free(self) -> list[int]:
        """Devices that nobody holds and that are available, ascending."""
        return self.free_devices().devices()

    def free_devices(self) -> FreeDevices:
        """The same, to take from."""
        if self.books is not None:
            return self.books.copy()
        free = FreeDevices(self.cluster)
        free.remove(self.unavailable.union(*self.running.values()))
        return free

    @property
    def capacity(self) -> int:
        """How many devices there are, less those that are unavailable."""
        return self.cluster.size - len(self.unavailable)

    def is_new(self, job: JobState) -> bool:
        """Whether the job asks for a promise, and nothing has been decided on it yet."""
        return not job.admitted and job.deadline < math.inf and job.name not in self.promises

    @property
    def available(self) -> list[int]:
        """Devices that can be given once they are free, ascending."""
        return [device for device in range(self.cluster.size) if device not in self.unavailable]


class BadPlan(ValueError):
    """A policy gave what cannot be given; the text says what."""


def validate(allocation: Allocation, state: State) -> None:
    """Check that `allocation` can be carried out once the jobs that it stops have left their devices.

    What a job holds already is not looked at again, beyond that nobody else is given it.

    Raises:
        BadPlan: a job that is unknown, has no device, fewer than its minimum or more than its limit, or devices of
            several kinds although its bits hold for one; a device that is given twice, not there or unavailable.
    """
    given = [*chain.from_iterable(allocation.values())]
    changed = {name: devices for name, devices in allocation.items() if state.running.get(name) != devices}
    _check_devices(
        changed if len({*given}) == len(given) else allocation, state.by_name, state.cluster.size, "allocated"
    )
    for name, devices in changed.items():
        check_given(state.by_name[name], devices, state.cluster)
    for device in state.unavailable.intersection(given):
        name = next(name for name, devices in allocation.items() if device in devices)
        raise BadPlan(f"job {name} is given device {device}, which is unavailable")


def check_given(job: JobState, devices: tuple[int, ...], cluster: Cluster) -> None:
    """Check that a job may have these devices, whoever holds them.

    Raises:
        BadPlan: fewer than its minimum, more than its limit, or of several kinds although its bits hold for one.
    """
    if len(devices) > job.limit:
        raise BadPlan(f"job {job.name} is given {len(devices)} devices, but can use at most {job.limit}")
    if len(devices) < job.minimum_devices:
        raise BadPlan(f"job {job.name} is given {len(devices)} devices, but runs on {job.minimum_devices} at least")
    if cluster.kinds and not job.mixed_kinds and len(kinds := {cluster.kind_of(device) for device in devices}) > 1:
        raise BadPlan(f"job {job.name} is given {' and '.join(sorted(kinds))}, but its bits hold for one kind alone")


def _check_devices(held: Allocation, names: Container[str], size: int, what: str) -> None:
    owner: dict[int, str] = {}
    for name, devices in held.items():
        if name not in names:
            raise BadPlan(f"job {name} is {what}, but is not among the unfinished jobs")
        if not devices:
            raise BadPlan(f"job {name} is {what} without a device; leave it out instead")
        for device in devices:
            if not 0 <= device < size:
                raise BadPlan(f"job {name} has device {device}, but the cluster's are 0 .. {size - 1}")
            if device in owner:
                raise BadPlan(f"device {device} serves at most one job, but {owner[device]} and {name} have it")
            owner[device] = name


@dataclass(frozen=True)
class Plan:
    """Who trains where from now on.

    Attributes:
        allocation: job -> devices. A running job with the devices that it has goes on, with others it moves.
        others_go_on: jobs that are not in `allocation` go on where they run; otherwise they stop.
        stopped: jobs that stop although others go on.
        lanes: job -> number of its lane, for jobs of `allocation` that begin anew, also on devices that they have: of
            the jobs of a stream that begin now, those with the same number read together. 0, where it is not said.
        batches: job -> samples in a step, for jobs whose number changes.
        admitted: jobs whose deadline is promised from now on.
        dropped: job -> why it will never run; it leaves the queue.
        undecided: job -> why nothing has been decided on its deadline yet.
        late: of the jobs whose deadline was promised, all that cannot meet it any more, and when each can be done at
            the earliest, counted as `wake`.
        windows: what became of promised service levels since the last plan.
        promoted: jobs whose service until now no longer counts against them.
        wake: seconds since the run began at which the policy wants to be asked even if nothing has happened.
        bound: seconds below which no plan can bring the end of all jobs, counted as `wake`; None: not computed.
        end: when this plan expects all jobs to be done, counted so; None: not computed.
        worth: what the plan is worth by the policy's own measure; None: it has none.
        worth_bound: what no plan could be worth more than now, by the same measure; None: not computed.
        memo: what the policy wants to see again in the next state, once, so that it may be changed in place. It saves
            work alone: with or without it the answer is the same. Only `gavel` and `goodput` learn by it, and begin
            anew where it is lost.
        lent: so many trainers without a job may prepare samples, and r(m) was cut off at what comes out with them;
            None: nobody has chosen.
        promises: job -> its promise from now on. Unlike the memo it is never lost, and an answer may depend
            on it: the driver keeps it, as it is, until it is replaced or the job has left.
    """

    allocation: Allocation = field(default_factory=dict)
    others_go_on: bool = False
    stopped: tuple[str, ...] = ()
    lanes: Mapping[str, int] = field(default_factory=dict)
    batches: Mapping[str, int] = field(default_factory=dict)
    admitted: tuple[str, ...] = ()
    dropped: Mapping[str, str] = field(default_factory=dict)
    undecided: Mapping[str, str] = field(default_factory=dict)
    late: Mapping[str, float] = field(default_factory=dict)
    windows: tuple[ServiceWindow, ...] = ()
    promoted: tuple[str, ...] = ()
    wake: float = math.inf
    bound: float | None = None
    end: float | None = None
    worth: float | None = None
    worth_bound: float | None = None
    memo: Any = None
    promises: Mapping[str, Any] = field(default_factory=dict)
    lent: int | None = None

    def whole_of(self, running: Allocation) -> dict[str, tuple[int, ...]]:
        """Everybody who trains from now on, and where, if `running` is who trains now."""
        if not self.others_go_on:
            return dict(self.allocation)
        going_on = {job: devices for job, devices in running.items() if job not in self.stopped}
        return {**going_on, **self.allocation}

    def without(self, jobs: Container[str]) -> Plan:
        """The plan for all others, where these jobs have ended meanwhile."""
        maps = ("allocation", "lanes", "batches", "dropped", "undecided", "late", "promises")
        fields: dict[str, Any] = {
            name: {job: value for job, value in getattr(self, name).items() if job not in jobs} for name in maps
        }
        for name in ("stopped", "admitted", "promoted"):
            fields[name] = tuple(job for job in getattr(self, name) if job not in jobs)
        return replace(self, **fields)

    @property
    def gap(self) -> float | None:
        """How far the plan can be from the best, as a share of the bound; None: no bound was computed."""
        return None if self.bound is None or self.end is None or self.bound <= 0 else self.end / self.bound - 1


def check_share(name: str, value: object) -> None:
    """Raises ValueError unless `value` is a number above 0 and at most 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise ValueError(f"{name} is {value!r}; it must be a number above 0 and at most 1, such as 0.8")


def check_flag(name: str, value: object) -> None:
    """Raises ValueError unless `value` is true or false."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}; it must be true or false")


def check_seconds(name: str, value: object) -> None:
    """Raises ValueError unless `value` is a finite number of 0 or more."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise ValueError(f"{name} is {value!r}; it must be a number of seconds, 0 or more, such as 60")


def check_period(name: str, value: object) -> None:
    """Raises ValueError unless `value` is a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise ValueError(f"{name} is {value!r} s; it must be a number of seconds above 0, and finite, such as 60")


def check_mean_epochs(value: object) -> None:
    """Raises ValueError unless `value` is None or a finite number above 0."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")
    if value is not None and not number:
        raise ValueError(f"mean_epochs is {value!r}; it must be a number of epochs above 0, such as 30, or left out")


def check_count(name: str, value: object) -> None:
    """Raises ValueError unless `value` is a whole number of 1 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}; it must be a whole number of 1 or more, such as 4")


class PolicyTrigger:
    """Gathers what happens between two plans, live and simulated. Times are seconds of the run.

    Args:
        trigger: says how long events wait.
        first: when to ask first although nothing has happened; infinite: not before something does.
    """

    def __init__(self, trigger: Trigger, first: float = -math.inf) -> None:
        self._trigger = trigger
        self._changed: dict[str, None] = {}
        self.events = 0
        """How many have happened since the last plan."""
        self._urgent = False  # one of them was the arrival of a guaranteed job
        self._due = self._wake = first  # by the trigger, and by the policy's own wish
        self._memo: object = None
        self._ends: dict[str, float] = {}
        self.clearing = False  # all groups leave first
        self.measuring = False  # a job that came is measured first

    @property
    def next(self) -> float:
        """When to ask the policy."""
        return math.inf if self.clearing or self.measuring else min(self._due, self._wake)

    @property
    def changed(self) -> tuple[str, ...]:
        """Jobs that the last plan knew otherwise, each once."""
        return tuple(self._changed)

    @property
    def memo(self) -> object:
        """The policy's, of its last plan."""
        return self._memo

    def happened(self, now: float, *jobs: str, urgent: bool = False) -> None:
        """Something did that the policy should know of; its trigger says when."""
        self.counts(*jobs, urgent=urgent)
        self.look(now)

    def counts(self, *jobs: str, urgent: bool = False) -> None:
        """Something happened that the policy should know of, and is to be asked about at the next look."""
        self.events += 1
        self._urgent |= urgent
        self._changed.update(dict.fromkeys(jobs))

    def look(self, now: float) -> None:
        """Find when to ask about what has been counted."""
        if self.events:
            self._due = min(self._due, self._trigger.due(now, self.events, self._urgent))

    def noted(self, job: str) -> None:
        """A job is otherwise than the last plan knew, which needs no other plan for that."""
        self._changed[job] = None

    def wake_by(self, time: float) -> None:
        """Ask then at the latest."""
        self._wake = min(self._wake, time)

    def learnt(self, now: float, job: str, before: float, after: float, patience: float | None) -> bool:
        """More is known of a running job. The policy is asked if the job is promised and falls behind its plan.

        Args:
            before, after: when it will be done at its pace, as was thought until now, and as is known now.
            patience: seconds by which it may come later than was thought when the policy was asked last; None: it is
                promised nothing.

        Returns:
            Whether the policy is asked.
        """
        self._changed[job] = None
        if patience is None or after <= self._ends.setdefault(job, before) + patience:
            return False
        del self._ends[job]
        self.happened(now)
        return True

    def started(self, job: str) -> None:
        """A job has other devices, and another end ahead."""
        self._ends.pop(job, None)

    def planned(self, plan: Plan) -> None:
        """The policy knows everything now."""
        self._ends = {}
        self._changed, self.events, self._urgent, self._memo = {}, 0, False, plan.memo
        self._due, self._wake = math.inf, plan.wake


class Policy(ABC):
    """Decides who trains where. Inherit from it, write `plan`, and name the class as `module:Name` in a spec.

    The driver, a run or a simulation, asks whenever a job comes, ends or stops, and when the policy wished to be asked.
    It shows a `State` and carries the `Plan` out: jobs whose devices change stop first, and start on the others.
    Parameters are what `__init__` takes, or the fields of a dataclass: a spec's `policy.parameters` are checked
    against these names, and what `__init__` raises as ValueError is told as it is.

    Attributes:
        name: the word by which reports call it; the name of the class, where it is not given.
        shares_streams: whether jobs that start together at the same place of the same data read the same samples.
        interval: seconds; what happens waits for the next multiple of it; 0: nothing waits.
        knows_kinds: whether it sees that devices are of several kinds; else it is asked for each kind alone.
        keeps_minimum: whether it gives no job fewer devices than its `minimum_devices`.
        keeps_service_levels: whether it holds what a job's `service_level` promises.
        tunes_batches: whether jobs that can choose their batch sizes themselves do so; else they keep their own.
        weighs_data_path: whether it minds what all jobs together ask of the preprocessors.
        learns_rates: whether it lets jobs learn their rates as they train, though they could be profiled before.
        chooses_batches: whether it chooses batches of jobs that have a range and are known by their rate curves alone.
        most_executors: the most trainers of a job that it may have on an accelerator that these share.
    """

    knows_kinds: ClassVar[bool] = False
    keeps_minimum: ClassVar[bool] = False
    keeps_service_levels: ClassVar[bool] = False
    tunes_batches: ClassVar[bool] = False
    weighs_data_path: ClassVar[bool] = False
    learns_rates: ClassVar[bool] = False
    interval: float = 0.0

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def shares_streams(self) -> bool:
        return False

    @property
    def chooses_batches(self) -> bool:
        return False

    @property
    def most_executors(self) -> int:
        return 1

    @property
    def trigger(self) -> Trigger:
        """When the driver asks: at each event, or at the ends of intervals."""
        return Trigger(self.interval)

    @abstractmethod
    def plan(self, state: State) -> Plan:
        """What should run from now on; the same answer for the same state.

        A running job that should go on appears with the devices that it has, unless `Plan.others_go_on`. One that is
        absent, or has other devices, stops.
        """


def ask(policy: Policy, state: State) -> Plan:
    """The policy's plan.

    Raises:
        BadPlan: it is none.
    """
    plan: object = policy.plan(state)
    if not isinstance(plan, Plan):
        raise BadPlan(f"it answers {plan!r}; return a fleet.scheduling.Plan")
    return plan
