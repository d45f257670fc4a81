"""Policies around a policy: kind by kind, within prices, with backfill, helper preprocessors or least laxity."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from fleet.scheduling.easyscale.kind_curves import KindCurves
from fleet.scheduling.model.cluster import Cluster, FreeDevices, Prices
from fleet.scheduling.model.data_path import NONE, Lending
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Allocation, Plan, Policy, State, Trigger
from fleet.scheduling.placing.homes import Homes, as_one_plan, curve_on, machines_of


def driven(policy: Policy, cluster: Cluster, prices: Prices | None = None, lending: Lending = NONE) -> Policy:
    """The policy as drivers ask it, live and simulated: kind by kind, within prices and with helpers where need be.

    Args:
        cluster: the machine.
        prices: of its devices; None: they do not count.
        lending: how many trainers may prepare samples.
    """
    whole = for_kinds(policy, cluster)
    if prices is not None and prices.by_kind and prices.worth < math.inf:
        whole = WithinPrices(whole, prices)
    return WithHelpers(whole, lending) if lending.most else whole


class WrappedPolicy(Policy):
    """Goes by the name and the triggers of another policy; `plan` is left to who inherits.

    Args:
        policy: the other one.
    """

    knows_kinds: ClassVar[bool] = True  # or the other one was wrapped for them already

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    @property
    def name(self) -> str:
        """The other one's."""
        return self._policy.name

    @property
    def shares_streams(self) -> bool:
        """As the other one."""
        return self._policy.shares_streams

    @property
    def trigger(self) -> Trigger:
        """As the other one's."""
        return self._policy.trigger


class _MemoOfKinds(NamedTuple):
    homes: Mapping[str, str]
    inner: tuple[object, ...]  # by machine


class KindByKind(WrappedPolicy):
    """Gives each job a kind of device as its home (see `Homes`), and asks the policy for each kind's plan in turn.

    A job that the policy drops at home, as one that asks for more devices than there are, is tried on the largest kind.

    Args:
        policy: for devices that are alike.
        cluster: with kinds.
    """

    def __init__(self, policy: Policy, cluster: Cluster) -> None:
        super().__init__(policy)
        self._machines = machines_of(cluster)

    def plan(self, state: State) -> Plan:
        """As `Policy.plan`."""
        fixed = {name: promise.kind for name, promise in state.promises.items()}
        plan, homes = self._planned(state, fixed)
        largest = max(self._machines, key=lambda machine: machine.cluster.size).kind
        dropped = [state.by_name[name] for name in plan.dropped if homes[name] != largest]
        again = {job.name: largest for job in dropped if job.mixed_kinds or not job.kind}
        # What was remembered may have been changed in place by the plan that is given up.
        return self._planned(replace(state, memo=None), {**fixed, **again})[0] if again else plan

    def _planned(self, state: State, fixed: Mapping[str, str]) -> tuple[Plan, Mapping[str, str]]:
        memo = state.memo if isinstance(state.memo, _MemoOfKinds) else _MemoOfKinds({}, (None,) * len(self._machines))
        homes = Homes(state, fixed).of
        moved = tuple(name for name, kind in homes.items() if memo.homes.get(name, kind) != kind)
        changed = (*state.changed, *moved)
        states = [one.state(state, homes, changed, kept) for one, kept in zip(self._machines, memo.inner)]
        plans = [self._policy.plan(each) if each.by_name else Plan() for each in states]
        plan = as_one_plan(self._machines, states, plans, _MemoOfKinds(homes, tuple(each.memo for each in plans)))
        return _with_movers_stopped(plan, state, homes), homes


def _with_movers_stopped(plan: Plan, state: State, homes: Mapping[str, str]) -> Plan:
    """A job that leaves its kind of device stops, even if it gets none of the other kind yet."""
    kind_of = state.cluster.kind_of
    movers = {name for name, devices in state.running.items() if name in homes and homes[name] != kind_of(devices[0])}
    stopped = movers.difference(plan.allocation, plan.stopped)
    return replace(plan, stopped=(*plan.stopped, *sorted(stopped))) if stopped else plan


def for_kinds(policy: Policy, cluster: Cluster) -> Policy:
    """The policy itself where it knows kinds of device or all are alike, else one that plans kind by kind."""
    return KindByKind(policy, cluster) if cluster.kinds and not policy.knows_kinds else policy


class _MemoOfPrices(NamedTuple):
    shut: frozenset[int]
    costs: Mapping[str, float]
    inner: object


class WithinPrices(WrappedPolicy):
    """Takes and drops kinds of device as their prices change (spot pricing: Saxena et al., 2020, section VII).

    An hour of a device is worth `Prices.worth` where a job trains fastest, and less on a kind on which jobs are
    slower, in proportion; the mean over the unfinished jobs counts. A kind whose price exceeds that is not there for
    the policy: jobs leave it, go where their bits allow, or wait until the price falls. The policy is asked anew at
    each change of a price. Where no price changes any more and all kinds are too dear, jobs are dropped.

    What devices cost in units of what they bring is told to the policy as `State.costs`.

    Args:
        policy: for all kinds of the cluster.
        prices: with a finite worth.
    """

    def __init__(self, policy: Policy, prices: Prices) -> None:
        super().__init__(policy)
        self._prices = prices

    def plan(self, state: State) -> Plan:
        """As `Policy.plan`."""
        costs = self._costs(state)
        shut = frozenset(
            device for device in range(state.cluster.size) if costs[state.cluster.kind_of(device)] > 1
        ) - frozenset(state.unavailable)
        known = state.memo if isinstance(state.memo, _MemoOfPrices) else None
        kept = known.inner if known is not None and (known.shut, known.costs) == (shut, costs) else None
        change = self._prices.next_change(state.time)
        if len(shut) == state.capacity:
            return self._pause(state, costs, change, _MemoOfPrices(shut, costs, None))
        seen = replace(state, costs=costs, memo=kept)
        if shut:
            seen = replace(seen, unavailable=state.unavailable | shut, books=None)
        plan = self._policy.plan(seen)
        plan = replace(plan, stopped=(*plan.stopped, *_driven_out(plan, state, shut)))
        dropped = dict(plan.dropped)
        if shut and change == math.inf and not plan.whole_of(state.running):
            dropped |= self._hopeless(state, costs)
        return replace(plan, dropped=dropped, wake=min(plan.wake, change), memo=_MemoOfPrices(shut, costs, plan.memo))

    def _costs(self, state: State) -> dict[str, float]:
        """Kind -> what a device of it costs, in units of what it brings; 1: as much."""
        kinds = list(state.cluster.counts())
        speeds = _speeds(state, kinds)
        return {kind: self._prices.at(kind, state.time) / (self._prices.worth * speeds[kind]) for kind in kinds}

    def _pause(self, state: State, costs: Mapping[str, float], change: float, memo: _MemoOfPrices) -> Plan:
        """Nobody trains until a price falls; if none changes any more, nobody who waits ever will."""
        dropped = self._hopeless(state, costs) if change == math.inf else {}
        return Plan(dropped=dropped, wake=change, memo=memo)

    def _hopeless(self, state: State, costs: Mapping[str, float]) -> dict[str, str]:
        """Why those who wait will never train."""
        told = ", ".join(f"{kind or 'devices'} {cost:.2f} times" for kind, cost in costs.items() if cost > 1)
        why = f"devices cost more than they are worth ({told}), and no price changes any more"
        return {job.name: why for job in state.waiting}


def _speeds(state: State, kinds: list[str]) -> dict[str, float]:
    """Kind -> how fast jobs are on one device of it, the mean of shares of each job's fastest kind."""
    if len(kinds) == 1 or not state.by_name:
        return dict.fromkeys(kinds, 1.0)
    sums = dict.fromkeys(kinds, 0.0)
    for job in state.by_name.values():
        rates = {kind: curve_on(job, kind)(1) for kind in kinds}
        fastest = max(rates.values())
        for kind, rate in rates.items():
            sums[kind] += rate / fastest
    return {kind: total / len(state.by_name) for kind, total in sums.items()}


def _driven_out(plan: Plan, state: State, shut: frozenset[int]) -> list[str]:
    """Jobs on devices that are too dear, which the plan neither moves nor stops."""
    if not plan.others_go_on:
        return []
    held = ((job, devices) for job, devices in state.running.items() if not shut.isdisjoint(devices))
    return [job for job, _ in held if job not in plan.allocation and job not in plan.stopped]


class Backfill(WrappedPolicy):
    """Gives jobs that train ahead of need as few devices as they run on, of those that the policy gives nobody.

    The policy is not shown these jobs: their devices are free for it, and they leave those that it gives away. Where
    it could as well have given others of the same node, it does.

    Args:
        policy: for all other jobs.
    """

    def plan(self, state: State) -> Plan:
        """As `Policy.plan`."""
        ahead = [job for job in state.by_name.values() if job.ahead]
        if not ahead:
            return self._policy.plan(state)
        seen = _without(state, {job.name for job in ahead})
        plan = _sparing(state, ahead, self._policy.plan(seen), seen.staying)
        taken = {device for devices in plan.whole_of(seen.staying).values() for device in devices}
        given = _given(state, ahead, set(state.available) - taken)
        driven_out = [job.name for job in ahead if job.name in state.running and job.name not in given]
        stopped = (*plan.stopped, *driven_out) if plan.others_go_on else plan.stopped
        return replace(plan, allocation={**plan.allocation, **given}, stopped=stopped)


def _without(state: State, names: set[str]) -> State:
    """The state without some jobs; their devices are free."""
    others = {name: job for name, job in state.by_name.items() if name not in names}
    running = {name: devices for name, devices in state.running.items() if name not in names}
    return replace(state, by_name=others, running=running, books=None)


def _sparing(state: State, ahead: Iterable[JobState], plan: Plan, staying: Allocation) -> Plan:
    """The plan with devices that nobody has in the place of those that jobs train ahead on, where it gives such."""
    held = {device for job in ahead for device in state.running.get(job.name, ())}
    taken = {device for devices in plan.whole_of(staying).values() for device in devices}
    spare, allocation = sorted(set(state.available) - taken - held), dict(plan.allocation)
    for name, devices in plan.allocation.items():
        for device in held.intersection(devices) if name not in state.running else ():
            node = state.cluster.node_of(device)
            instead = next((each for each in spare if state.cluster.node_of(each) == node), None)
            if instead is not None:
                spare.remove(instead)
                allocation[name] = tuple(sorted({*allocation[name], instead} - {device}))
    return replace(plan, allocation=allocation)


def _given(state: State, ahead: Iterable[JobState], free: set[int]) -> Allocation:
    """Who of these has which of the devices that are free: those that run first, where they are if that can be."""
    given: dict[str, tuple[int, ...]] = {}
    ahead = sorted(ahead, key=lambda job: job.name not in state.running)
    left = FreeDevices(state.cluster, free)
    for job in ahead:
        held = state.running.get(job.name)
        if held is not None and free.issuperset(held):
            given[job.name] = held
            left.remove(held)
    for job in ahead:
        if job.name not in given and (devices := _first_fit(state, job, left)) is not None:
            given[job.name] = devices
    return given


def _first_fit(state: State, job: JobState, left: FreeDevices) -> tuple[int, ...] | None:
    """Devices for a job that begins; None: there are none of one kind."""
    kinds = dict.fromkeys(state.cluster.kinds)
    if not kinds or job.mixed_kinds:
        kinds = dict.fromkeys([job.kind if job.kind in kinds else "", ""])
    elif job.kind:
        kinds = dict.fromkeys([job.kind])
    found = (left.take(job.minimum_devices, kind) for kind in kinds)
    return next((devices for devices in found if devices is not None), None)


class _MemoOfHelpers(NamedTuple):
    lent: int
    inner: object


class WithHelpers(WrappedPolicy):
    """Lets trainers prepare samples that the plan gives no job, where samples come too slowly for some job.

    What the data path feeds hangs on the plan, and the plan on what it feeds: r(m) is cut off at what k trainers and
    all preprocessors make, and more of them let jobs use more devices. So the policy is asked with k, and its plan
    counts if it leaves k devices alone. The largest such k is found by bisection: the more trainers are counted, the
    more devices the policy gives away, and the fewer are left. k = 0 always fits.

    States have the rates with `Lending.most` trainers, and `JobState.fed` without any; the policy sees both with k.

    Args:
        policy: for the jobs.
        lending: how many trainers may prepare.
    """

    def __init__(self, policy: Policy, lending: Lending) -> None:
        super().__init__(policy)
        self._lending = lending

    def plan(self, state: State) -> Plan:
        """As `Policy.plan`."""
        most = min(self._lending.most, state.capacity - 1) if _is_held_up(state) else 0
        found = self._plan(state, max(most, 0))
        if found is not None:
            return found
        least, under, over = self._with(state, 0), 0, most
        while over - under > 1:
            between = (under + over) // 2
            plan = self._plan(state, between)
            if plan is None:
                over = between
            else:
                least, under = plan, between
        return least

    def _plan(self, state: State, lent: int) -> Plan | None:
        """The plan if so many trainers prepare; None: it leaves fewer alone."""
        plan = self._with(state, lent)
        taken = sum(map(len, plan.whole_of(state.staying).values()))
        return plan if not lent or state.capacity - taken >= lent else None

    def _with(self, state: State, lent: int) -> Plan:
        known = state.memo if isinstance(state.memo, _MemoOfHelpers) else None
        memo = known.inner if known is not None and known.lent == lent else None
        by_name = {name: _fed(job, self._lending.times(lent)) for name, job in state.by_name.items()}
        plan = self._policy.plan(replace(state, by_name=by_name, memo=memo))
        return replace(plan, lent=lent, memo=_MemoOfHelpers(lent, plan.memo))


def _is_held_up(state: State) -> bool:
    """Whether a job could train faster on the devices that there are than preprocessors alone feed it."""
    return any(
        job.fed < math.inf and float(job.rate.rates(min(job.limit, max(state.capacity, 1))).max()) > job.fed
        for job in state.by_name.values()
    )


def _fed(job: JobState, times: float) -> JobState:
    """The job if preprocessors made so many times what they make alone."""
    if job.fed == math.inf:
        return job
    scaling, most = job.scaling, job.fed * times
    if isinstance(scaling, KindCurves):
        scaling = scaling.capped(most)
    return job.changed(rate=job.rate.capped(most, job.limit), scaling=scaling, fed=most)


_ROUNDING = 1e-6
_SOON = 0.05  # of the time until all have ended: devices that are free by then are waited for


class LeastLaxity(WrappedPolicy):
    """Lets a job have the devices of one that can wait, once it cannot wait any longer itself.

    Jobs that take as many devices each all end by T, and no sooner,

        T = max(max_i r_i, sum_i r_i / M),

    where r_i is how long job i has yet to train, and M of them train at a time, if jobs are stopped in time for others
    (McNaughton, 1959: Scheduling with Deadlines and Loss Functions). The laxity of job i is T - r_i: so long can it
    wait. The wrapped policy says who trains; when the laxity of a job that waits has run out, it takes the place of
    the one with the most. A job in its last epoch waits for its turn, and keeps its devices, which are free soon.

    Others may wait for its end, and then train for up to f_i: `JobState.further` of the longest epochs that are known.
    Nobody is stopped for that. But of those that are to begin the first is whose r_i + f_i is most, once
    max(T, max_j (r_j + f_j)) - (r_i + f_i) has run out, as on the critical path of a project. And nobody is stopped for
    whom others wait.

    Jobs with a deadline, a service level or a guarantee are left alone, as are those that train ahead of need, and all
    where there are several kinds of device.

    Args:
        policy: says who trains.
    """

    def plan(self, state: State) -> Plan:
        """As `Policy.plan`."""
        plan = self._policy.plan(state)
        given = plan.whole_of(state.staying)
        waiting = [job for job in state.by_name.values() if job.name not in given and job.name not in plan.dropped]
        if state.cluster.kinds or not given:
            return plan
        for size in sorted({job.gang for job in waiting}):
            line = _Line.of(state, given, [job for job in waiting if job.gang == size], size)
            plan = line.let_go_first(plan, state)
        return plan


@dataclass(frozen=True)
class _Line:
    """Jobs that take as many devices each.

    Attributes:
        devices: those of the jobs that train.
        waiting: names of the others, on whom most may wait first.
        seconds: that each has yet to train, r_i.
        chains: with what may follow on it, r_i + f_i.
        epochs: seconds of an epoch of each.
        moving: most seconds that it takes one of them to begin elsewhere.
    """

    devices: Allocation
    waiting: Sequence[str]
    seconds: Mapping[str, float]
    chains: Mapping[str, float]
    epochs: Mapping[str, float]
    moving: float

    @classmethod
    def of(cls, state: State, given: Allocation, waiting: Iterable[JobState], size: int) -> _Line:
        """The jobs of this size, of those that are to train and those that are not."""
        train = [state.by_name[name] for name, devices in given.items() if len(devices) == size]
        train = [job for job in train if job.gang == size and _may_move(job)]
        wait = [job for job in waiting if _may_move(job) and job.minimum_devices <= size]
        jobs = [*train, *wait]
        seconds = {job.name: _seconds(job, size, state.time) for job in jobs}
        epochs = {job.name: job.epoch / float(job.rate(size)) for job in jobs}
        longest = max(epochs.values(), default=0.0)
        chains = {job.name: seconds[job.name] + job.further * longest for job in jobs}
        return cls(
            {job.name: given[job.name] for job in train},
            sorted((job.name for job in wait), key=lambda name: -chains[name]),
            seconds,
            chains,
            epochs,
            max((job.restart for job in jobs), default=0.0),
        )

    def let_go_first(self, plan: Plan, state: State) -> Plan:
        """The plan in which those train that cannot wait; it is made anew when the next of them cannot."""
        if not self.devices or not self.waiting or math.inf in self.seconds.values():
            return plan
        end = max(*self.seconds.values(), sum(self.seconds.values()) / len(self.devices))
        last, least = max(end, *self.chains.values()), max(self.moving, _ROUNDING * end)
        left, waiting = set(self.devices), set(self.waiting)
        for name in self.waiting:
            cannot_wait = end - self.seconds[name] <= least
            if not cannot_wait and last - self.chains[name] > least:
                continue
            other = self._who_can_wait(name, left, state.running, max(self.moving, _SOON * end), cannot_wait)
            if other is None:
                break
            plan = self._instead(plan, state, name, other)
            left, waiting = left - {other}, waiting - {name} | {other}
        laxity = end - max(self.seconds[name] for name in waiting)
        return replace(plan, wake=min(plan.wake, state.time + laxity)) if laxity > least else plan

    def _who_can_wait(
        self, name: str, left: Set[str], running: Container[str], soon: float, may_stop: bool
    ) -> str | None:
        """Whose place a job should take: of one that has not begun, or else of one that has; None: it should wait.

        Args:
            may_stop: whether one that has begun may be stopped.
        """
        ends, chain = self.seconds[name], self.chains[name]
        shortest = sorted(left, key=lambda other: (self.chains[other], other))
        if chain <= self.epochs[name] * (1 + _ROUNDING):
            return None
        for other in shortest:
            if other not in running and self.chains[other] < chain:
                return other
        if not may_stop or ends <= self.epochs[name] * (1 + _ROUNDING):
            return None
        for other in shortest:
            if other in running:
                goes_on = max(soon, self.epochs[other]) < self.seconds[other]
                goes_on &= self.chains[other] == self.seconds[other] < ends - self.moving
                return other if goes_on else None
        return None

    def _instead(self, plan: Plan, state: State, name: str, other: str) -> Plan:
        """The plan in which one job has the place of another. What the policy remembers is of its own plan."""
        allocation = {job: devices for job, devices in plan.allocation.items() if job != other}
        is_stopped = plan.others_go_on and other in state.running
        return replace(
            plan,
            allocation={**allocation, name: self.devices[other]},
            stopped=(*plan.stopped, other) if is_stopped else plan.stopped,
            lanes={job: lane for job, lane in plan.lanes.items() if job != other},
            memo=None,
        )


def _may_move(job: JobState) -> bool:
    """Whether nothing is promised to a job."""
    return not (job.ahead or job.guaranteed or job.service_level is not None or job.deadline < math.inf)


def _seconds(job: JobState, devices: int, now: float) -> float:
    """How long a job has yet to train on so many devices; infinite: nobody knows."""
    return max(0.0, job.remaining_at(now)) / (job.pace if job.pace else float(job.rate(devices)))
