"""Rates that nobody has measured.

`FirstRates`: the first steps of a group tell them, and the policy hears of it once. `NewcomerRates`: jobs that came
while others train, and that nobody can guess, are measured before the policy hears of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from fleet.coordination.executor import Executor, Measured, PendingStarts, RunHooks, StopReason
from fleet.coordination.job_record import JobRecord
from fleet.coordination.live_state import Recorder
from fleet.coordination.protocol import StepsTimed
from fleet.journal import events
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Allocation, Plan, Policy, State
from fleet.scheduling.model.rates import RateCurve

PATIENCE_SECONDS = 3.0
"""A plan waits at most so long for the first steps of a group."""
FREE_SECONDS, PART = 1.0, 0.02
"""The machine may stand idle for so long, and for so much of the run's time, while jobs are timed on one device."""
CHANGE = 0.2
"""A guess that is wrong by less stays."""


class FirstRates:
    """Records how fast the first steps of groups are, and says when that is worth asking the policy.

    A job with guessed rates begins on one of the devices that a plan gives it, where the plan would be another one if
    further devices brought the job nothing: all curves begin with r(1). Once that is known, the job gets the other
    devices too, unless the policy now wants otherwise.

    Args:
        recorder: records what was timed.
        hooks: guess.
    """

    def __init__(self, recorder: Recorder, hooks: RunHooks) -> None:
        self._recorder, self._state, self._hooks = recorder, recorder.state, hooks
        self._alone: frozenset[str] = frozenset()  # those of the last plan that begin on one device
        self._tried: set[str] = set()  # those that have begun so
        self._awaited: dict[str, float] = {}  # job -> second until which its first steps are awaited
        self._silent: set[str] = set()  # those that train and have not said how fast, awaited or not
        self._news: dict[str, None] = {}  # jobs of which the policy has to hear

    # plans

    def choose(self, policy: Policy, state: State, plan: Plan) -> None:
        """Choose which jobs of a plan begin on one device; `state`: the plan was made for it."""
        self._alone = frozenset()
        idle = self._state.overhead["profiling"] <= FREE_SECONDS + PART * state.time
        wide = self._guessed_on_several(state, plan.whole_of(state.running))
        waits = policy.trigger.interval > 0  # a job that is timed would keep devices idle until the interval's end
        if not wide or waits or len(state.by_name) == 1 or self._state.cluster.kinds or not idle:
            return
        flat = {name: _flat(state.by_name[name]) for name in wide}
        other = policy.plan(replace(state, by_name={**state.by_name, **flat}, memo=None))
        if other.whole_of(state.running) != plan.whole_of(state.running):
            self._alone = frozenset(wide)

    def begins_on(self, job: str, devices: tuple[int, ...]) -> tuple[int, ...]:
        """Return the devices on which a job begins to which the plan gives these."""
        return devices[:1] if job in self._alone - self._tried else devices

    def has(self, job: str) -> tuple[int, ...]:
        """Return the devices that a running job has for plans: with those kept for it, while it is timed on one."""
        return self._state.held[job] if job in self._awaited else self._state.running[job]

    def with_mates(self, new: Allocation, allocation: Allocation) -> dict[str, tuple[int, ...]]:
        """Return who starts anew, with those who read together with a job that now gets the devices kept for it.

        So they go on together from the place of the rearmost of them.
        """
        known, kept = self._state.jobs, self._state.kept
        lanes = {_lane(known[job]) for job, devices in new.items() if kept.get(job) == devices}
        if not lanes:
            return {**new}
        running = [job for job in self._state.running if job in allocation]
        return {**new, **{job: allocation[job] for job in running if _lane(known[job]) in lanes}}

    # what happens

    def started(self, job: str, devices: tuple[int, ...], now: float) -> None:
        """Await the first steps of a job on devices where nobody has timed it."""
        if job in self._state.kept:
            self._tried.add(job)
        if not self._state.jobs[job].is_timed_on(self._state.kinds_of(devices)):
            self._awaited.pop(job, None)
            self._awaited[job] = now + PATIENCE_SECONDS
            self._silent.add(job)

    def on_steps_timed(self, event: StepsTimed) -> None:
        """Record how fast the first steps of a group were."""
        devices = self._state.running.get(event.job, ())
        kinds = self._state.kinds_of(devices)
        if devices and event.rate > 0 and not self._state.jobs[event.job].is_timed_on(kinds):
            kind = kinds[0] if len(set(kinds)) == 1 else ""
            self._recorder.record(events.Timed(**vars(event), devices=devices, count=len(devices), kind=kind))
            self._heard(event.job)
        self._forget(event.job)

    def ended_epoch(self, job: str) -> None:
        """Take a job's first epoch for its first steps, where samples came so slowly that nobody waits any more."""
        if job in self._silent:
            self._forget(job)
            self._heard(job)

    def ended(self, job: str) -> None:
        """Await nothing more of a job that has left its devices."""
        self._forget(job)

    # when the policy is asked

    def due(self, now: float, free: bool) -> tuple[str, ...]:
        """Return the jobs of which the policy should hear now: once all are timed that can be, so that it is asked
        once.

        Args:
            free: whether its last plan is carried out; else it hears of them later.
        """
        while self.next <= now:
            job = next(iter(self._awaited))
            del self._awaited[job]
            if job in self._state.kept:
                self._news[job] = None
        if self._awaited or not free:
            return ()
        news, self._news = tuple(self._news), {}
        return news

    @property
    def next(self) -> float:
        """When the first of the awaited has been awaited in vain."""
        return next(iter(self._awaited.values()), math.inf)

    def _forget(self, job: str) -> None:
        self._awaited.pop(job, None)
        self._silent.discard(job)

    def _heard(self, job: str) -> None:
        self._news[job] = None
        if guesses := dict(self._guessed_anew()):
            self._recorder.record(events.Guesses(rates=guesses))
            self._news.update(dict.fromkeys(guesses))

    def _guessed_anew(self) -> Iterator[tuple[str, float]]:
        """Yield the waiting jobs whose guess has changed much, and their samples/s on one device by now."""
        for job in self._state.jobs.guessed:
            rate = self._hooks.guess(job.name)
            if rate is None or abs(rate / next(iter(job.curves.values()))(1) - 1) < CHANGE:
                return  # what was learnt of the device concerns all of them alike
            yield job.name, rate

    def _guessed_on_several(self, state: State, allocation: Allocation) -> list[str]:
        several = [job for job, devices in allocation.items() if len(devices) > 1 and job not in self._tried]
        moved = [job for job in several if state.running.get(job) != tuple(allocation[job])]
        return [job for job in moved if self._state.jobs[job].guessed]


def _flat(job: JobState) -> JobState:
    """Return the job as if further devices brought it nothing."""
    return job.changed(rate=RateCurve({1: job.rate(1)}, per_node=1, limit=1))


def _lane(job: JobRecord) -> tuple[str, int, int]:
    """Return what jobs have in common that read together if they began together."""
    return job.stream, job.epoch, job.state.lane


SPARE_SECONDS = 60.0
"""A promised job gives its devices away for a while if it is done so much before its deadline at its pace."""
SPARE_SECONDS_OF_FED = 20.0
"""It does without the trainers that prepare its samples if it is done so much before its deadline."""


class NewcomerRates:
    """Measures jobs without rates, one after the other: on free devices, on those whose trainers prepare samples for
    jobs that do without meanwhile, or on those of a job that makes room.

    Args:
        executor: measures.
        recorder: records what was measured.

    Attributes:
        measured: the job that is measured now; "": none.
        unhelped: jobs that begin anew on their devices first, without trainers that prepare their samples.
    """

    def __init__(self, executor: Executor, recorder: Recorder) -> None:
        self._executor, self._recorder, self._state = executor, recorder, recorder.state
        self._leaving = ""  # the job that makes room
        self._rates: dict[int, float] = {}
        self._kind = ""  # of the devices on which they were measured
        self.measured = ""
        self.unhelped = PendingStarts()

    def advance(self, leave: Callable[[str, StopReason], None]) -> bool:
        """Do what comes next if a job has no rates; return whether plans have to wait for it.

        Args:
            leave: asks a job to leave its devices.
        """
        if self.measured or self._leaving in self._state.running:
            return True
        self._leaving, self.unhelped = "", PendingStarts()
        job = self._state.jobs.unrated
        if job is None:
            return False
        free = self._free_of_one_kind()
        if not free:
            return self._make_room(leave)
        missing = sorted({1, min(job.limit, len(free))} - self._rates.keys())
        if not missing:
            self._rate(job)
            return self.advance(leave)
        if not self._executor.save_held():  # jobs in memory leave too little of it
            self.measured = job.name
            self._executor.measure(job.name, tuple(free[: missing[0]]))
        return True

    def on_measured(self, result: Measured) -> None:
        """Record a measurement."""
        self.measured, count = "", len(result.devices)
        self._rates[count], self._kind = result.rate, self._state.cluster.kind_of(result.devices[0])
        self._recorder.record(events.Profile(**vars(result), count=count, kind=self._kind))

    def ended(self, job: str) -> None:
        """Forget a measurement whose group has ended: it has failed, or lost a rank."""
        if job == self.measured:
            self.measured, self._rates = "", {}

    def _rate(self, job: JobRecord) -> None:
        rates, self._rates = self._rates, {}
        curve = RateCurve(rates, per_node=self._state.cluster.per_node(self._kind), workers=job.limit)
        self._recorder.record_rates(job.name, self._state.completed({self._kind: curve}), "profile")

    def _free_of_one_kind(self) -> list[int]:
        """Return the free devices of the kind that was begun with, else of the kind that has most of them."""
        cluster, held = self._state.cluster, {each for devices in self._state.held.values() for each in devices}
        lent, free = self._state.helpers.devices(self._state.running), dict[str, list[int]]()
        for device in range(cluster.size):
            if device not in held | self._state.lost_devices | lent:
                free.setdefault(cluster.kind_of(device), []).append(device)
        if self._rates:
            return free.get(self._kind, [])
        return max(free.values(), key=len, default=[])

    def _make_room(self, leave: Callable[[str, StopReason], None]) -> bool:
        """Let jobs leave, so that devices become free; return whether any will."""
        self.unhelped = self._who_does_without_help()
        self._leaving = "" if self.unhelped.devices else self._who_makes_room()
        leaving = list(self.unhelped.devices) or ([self._leaving] if self._leaving else [])
        for job in leaving:
            leave(job, "policy")
        return bool(leaving)

    def _who_does_without_help(self) -> PendingStarts:
        """Return the jobs for which trainers prepare samples; none if one of them has too little time to do without."""
        running, held = self._state.running, self._state.held
        helped = self._state.helpers.readers(running, self._state.helpers.devices(running) - self._state.lost_devices)
        jobs = [self._state.jobs[name] for name in helped]
        late = any(job.state.admitted and _spare(job) < SPARE_SECONDS_OF_FED for job in jobs)
        if late:
            return PendingStarts()
        lanes = {job.name: job.state.lane for job in jobs}  # they go on reading together
        return PendingStarts({job.name: held[job.name] for job in jobs}, lanes, keys={"lent": 0})

    def _who_makes_room(self) -> str:
        """Return a job that is promised nothing, of fewest devices, or the one with most time to spare; "": none."""
        running = [self._state.jobs[name] for name in sorted(self._state.running)]
        others = [job for job in running if not job.state.admitted]
        if others:
            return min(others, key=lambda job: job.state.held).name
        spare = {job.name: _spare(job) for job in running}
        chosen = max(spare, key=lambda name: spare[name], default="")
        return chosen if spare.get(chosen, -math.inf) >= SPARE_SECONDS else ""


def _spare(job: JobRecord) -> float:
    """Return the seconds by which a job will be done before its deadline at its pace."""
    return job.state.deadline - job.expected_end
