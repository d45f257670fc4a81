"""Who follows a network on its device: told before that one ends, so that steps follow steps."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from time import thread_time

from fleet.coordination.bookkeeper import Bookkeeper
from fleet.coordination.executor import Following, GroupEnded, Start
from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.policy import Policy
from fleet.scheduling.model.state import Allocation, State

MOST_EPOCH_SECONDS = 5.0
"""Where epochs take longer, what stands between two networks is little, and more may change until one ends."""
MOST_PLAN_SECONDS = 0.02
"""A policy that takes longer is not asked twice for each network."""


@dataclass(frozen=True)
class Successor:
    """A job that is told to train on a device as soon as another one leaves it."""

    job: str
    devices: tuple[int, ...]


class Successors:
    """Asks the policy, as networks begin their last epochs, what it would start once they are done.

    Where it would start networks that have never trained, each on one of the devices that become free, and leave all
    others as they are, those are told at once. They begin when the ones before them leave, without a further question;
    whatever else happens until then has the policy asked anew, and calls off who is not to follow after all.

    Args:
        policy: the run's.
        executor: tells them.
        books: say how far networks are.
        share: whether networks at one place of a stream read together.
    """

    def __init__(self, policy: Policy, executor: Following, books: Bookkeeper, share: bool) -> None:
        self._policy, self._executor, self._ledger, self._share = policy, executor, books.ledger, share
        self._of: dict[str, Successor] = {}  # job that trains its last epoch -> who follows it
        self._due: dict[str, Successor] = {}  # whom they followed has left, and they have not been started yet
        self._asked: frozenset[str] = frozenset()  # in their last epochs when the policy was asked last
        self._is_quick = not books.ledger.cluster.kinds

    def look(self, now: float, seconds: float) -> None:
        """Choose who follows the networks that are in their last epochs, and tell them.

        Args:
            seconds: that the last epoch took.
        """
        if not self._is_quick or seconds > MOST_EPOCH_SECONDS:
            return
        ending = {job for job in self._ledger.running if job not in self._of and self._is_last(job)}
        if not ending or ending == self._asked:
            return
        self._asked = frozenset(ending)
        if self._ledger.lost_devices or self._ledger.kept or self._ledger.lent.counted:
            return
        state, begin = self._as_if_ended(now, ending), thread_time()
        plan = self._policy.plan(state)
        self._is_quick = thread_time() - begin < MOST_PLAN_SECONDS
        freed = {device for job in ending for device in self._ledger.running[job]}
        found = self._followers(plan, state.running, freed)
        starts = {
            next(name for name in ending if devices[0] in self._ledger.running[name]): self._start_of(job, devices)
            for job, devices in found.items()
        }
        if starts and self._executor.follow(starts, self._share):
            self._of |= {before: Successor(start.job, start.devices) for before, start in starts.items()}

    def after(self, event: GroupEnded) -> Successor | None:
        """Return who follows a group that has ended; None: the policy is to be asked."""
        found = self._of.pop(event.job, None)
        if found is None:
            return None
        if event.why == "done" and event.devices == found.devices and self._waits(found):
            self._due[found.job] = found
            return found
        self._executor.call_off(found.job)
        return None

    def started(self, job: str) -> None:
        """A job that followed another has been started."""
        self._due.pop(job, None)

    def settle(self, allocation: Allocation) -> None:
        """Call off whoever does not follow by a new plan."""
        for job, found in list(self._of.items()):
            goes_on = self._ledger.running.get(job, ()) == allocation.get(job) and found.job not in allocation
            if not (goes_on and self._waits(found)):
                self._executor.call_off(found.job)
                del self._of[job]
        for name, found in list(self._due.items()):
            if allocation.get(name) != found.devices:
                self._executor.call_off(name)
                del self._due[name]
        self._asked = frozenset()

    def _waits(self, found: Successor) -> bool:
        return self._ledger.jobs[found.job].waits and found.job not in self._ledger.running

    def _is_last(self, job: str) -> bool:
        """Whether a job's last epoch has just begun, on one device."""
        record = self._ledger.jobs[job]
        known = record.until is None and len(self._ledger.running[job]) == 1 and record.samples < math.inf
        left = record.samples - record.epoch * record.state.epoch if known else 0.0
        return record.step == 0 and 0 < left <= record.state.epoch

    def _as_if_ended(self, now: float, ending: Collection[str]) -> State:
        """The state in which these networks are done, and those before them whose successors are known."""
        state, gone = self._ledger.state(now), {*ending, *self._of}
        running = {job: devices for job, devices in state.running.items() if job not in gone}
        running |= {found.job: found.devices for found in self._of.values()}
        by_name = {name: job for name, job in state.by_name.items() if name not in gone}
        return replace(state, by_name=by_name, running=running, memo=None, books=None)

    def _followers(self, plan: Plan, running: Allocation, freed: Collection[int]) -> Allocation:
        """The jobs that a plan starts, if it does nothing else and each gets one device that becomes free."""
        allocation = plan.whole_of(running)
        more = (plan.batches, plan.admitted, plan.dropped, plan.undecided, plan.late, plan.windows, plan.promoted,
                plan.promises, plan.lent, any(plan.lanes.values()))  # fmt: skip
        if any(more) or plan.wake < math.inf or any(allocation.get(job) != held for job, held in running.items()):
            return {}
        new = {job: tuple(devices) for job, devices in allocation.items() if job not in running}
        fits = all(len(devices) == 1 and devices[0] in freed and self._is_plain(job) for job, devices in new.items())
        return new if fits else {}

    def _is_plain(self, job: str) -> bool:
        """Whether nothing has to be settled before a job starts."""
        record = self._ledger.jobs[job]
        fresh = not record.started and record.epoch == record.step == 0
        return fresh and record.until is None and record.batches is None and record.schedule is None

    def _start_of(self, job: str, devices: tuple[int, ...]) -> Start:
        record = self._ledger.jobs[job]
        turns = record.turn_seconds(self._ledger.kinds_of(devices), self._ledger.feeds(job))
        return Start(job, devices, 0, 0, False, turns, shares=record.shares(self._ledger.kinds_of(devices)))
