"""ElasticFlow: admission, minimum satisfactory shares, quotas and buddy placement (Gu et al., ASPLOS'23)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Protocol

from fleet.scheduling.elasticflow.buddy import Placer
from fleet.scheduling.elasticflow.promises import NEVER, Promises, climb
from fleet.scheduling.elasticflow.shares import slot_at
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Allocation, Plan, Policy, State, check_flag

EVERYBODY = "*"
"""Stands for each user who is not named."""


@dataclass(frozen=True)
class Quotas:
    """Device-seconds that may be set aside at a time for a user's unfinished jobs.

    So a user who submits many jobs with tight deadlines, which would fill the machine, is held to a part of it.

    Args:
        seconds: by user; `EVERYBODY`: of each other one. Who is not named has no limit.

    Raises:
        ValueError: a number that is not above 0.
    """

    seconds: Mapping[str, float]

    def __post_init__(self) -> None:
        for user, most in self.seconds.items():
            number = isinstance(most, (int, float)) and not isinstance(most, bool)
            if not (number and 0 < most < math.inf):
                raise ValueError(f"quotas of {user} is {most!r}; it must be a number of device-seconds above 0")

    def of(self, job: JobState) -> float:
        """What may be set aside for the job's user; infinite: no limit."""
        return self.seconds.get(job.tenant, self.seconds.get(EVERYBODY, math.inf))

    def refuses(self, job: JobState, wanted: float) -> str:
        """Why the job can never be promised anything: it needs more than its user may ever have; empty if it can."""
        most = self.of(job)
        if wanted <= most:
            return ""
        return f"its promise takes {wanted:,.0f} device-seconds, and {job.tenant or 'its user'} may have {most:,.0f}"

    def exceeds(self, book: Promises, job: JobState, state: State, slot: float) -> bool:
        """Whether the user's promises, that of the job among them, are more than may be set aside."""
        return self.of(job) < math.inf and promised_to(job.tenant, book, state, slot) > self.of(job)


def promised_to(user: str, book: Promises, state: State, slot: float) -> float:
    """Device-seconds that are set aside for a user's jobs from now on."""
    now, total = slot_at(state.time, slot), 0.0
    for name, claim in book.claims.items():
        if name in state.by_name and state.by_name[name].tenant == user:
            total += float(claim.devices[max(0, now - claim.share.first) :].sum()) * slot
    return total


@dataclass
class Allotment:
    """Who goes on, and who changes.

    Attributes:
        counts: job -> devices that it should get instead of those that it has.
        stopped: jobs that have devices and get none.
        restarts: whether moving takes time.
        rise: the next slot in which a job is promised more than it gets; NEVER: there is none.
    """

    counts: dict[str, int] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    restarts: bool = False
    rise: int = NEVER

    def place(self, book: Promises, state: State) -> dict[str, tuple[int, ...]]:
        """Buddy blocks for those who change, and for those who make room for them."""
        if not self.counts:
            return {}
        running, lost, going = state.running, state.unavailable, {*self.counts, *self.stopped}
        free, there = state.free_devices().bits(book.tree.width), book.tree.all & ~book.tree.bits(lost)
        for name in going & running.keys():
            free |= book.tree.bits_of(running[name]) & there

        def staying() -> Allocation:
            return {name: devices for name, devices in running.items() if name not in going}

        def may_move(name: str) -> bool:
            claim = book.claims[name]
            return book.spare(claim, state.by_name[name], state.time, claim.target) >= 0

        return Placer(book.tree, free, staying, there, may_move if self.restarts else None).place(self.counts)


def allot(book: Promises, state: State, slot: int, available: int) -> Allotment:
    """Give each job its promised devices of this slot, and the rest to the jobs that it helps most.

    Args:
        book: the promises, which fit into `available` together.
        state: as the policy sees it.
        slot: the one that has begun.
        available: devices that can be given.
    """
    left, restarts = available, False
    for claim in book.claims.values():
        claim.target = level = claim.level(slot)
        left -= claim.levels.counts[level]
        restarts = restarts or claim.restart > 0
    if restarts:
        _raise_with_care(book, state, left)
    elif left:
        climb(book.steps, left)
    return _compared(book, state, slot, restarts)


def _raise_with_care(book: Promises, state: State, left: int) -> None:
    """The same where moving takes time: who has more than it is promised keeps it if it can, and who cannot pay stays.

    A job may be moved at will only if its promise is kept even if it must move again at once; to go back to what it is
    promised it can always pay.
    """
    fixed = set()
    for name in sorted(state.running):
        claim = book.claims[name]
        counts, keeps = claim.levels.counts, claim.levels.number(len(state.running[name]))  # no more than it can use
        more = counts[keeps] - counts[claim.target]
        if 0 < more <= left:
            claim.target = keeps
            left -= more
    for name, claim in book.claims.items():
        if book.spare(claim, state.by_name[name], state.time, -1) < 0:
            fixed.add(name)
    if left:
        climb([step for step in book.steps if step[2] not in fixed], left)


def _compared(book: Promises, state: State, slot: int, restarts: bool) -> Allotment:
    """The changes, now that each job has its target."""
    held, none, found = state.running.get, (), Allotment(restarts=restarts)
    changed = [
        name for name, claim in book.claims.items() if len(held(name, none)) != claim.levels.counts[claim.target]
    ]
    if state.unavailable:
        hit = (name for name, devices in state.running.items() if not state.unavailable.isdisjoint(devices))
        changed = sorted({*changed, *hit})
    for name in changed:
        claim = book.claims[name]
        if claim.target:
            found.counts[name] = claim.levels.counts[claim.target]
        else:
            found.stopped.append(name)
    rising = [claim for claim in book.claims.values() if claim.top > claim.target]
    found.rise = min([claim.next_rise(slot) for claim in rising], default=NEVER)
    return found


ORDERS = ("arrival", "deadline")
BEYOND = "its user has as much promised as the quota allows; it is decided on when that is less"


class Quota(Protocol):
    """Decides whether a job that can be admitted is: by what its tenant may have, or pays (4.4)."""

    def __call__(self, job: JobState, device_seconds: float, state: State) -> str:
        """Why it is not admitted; empty if it is. The same answer for the same state.

        Args:
            job: one that can be admitted.
            device_seconds: what would be set aside for it.
            state: as the policy sees it.
        """
        ...


@dataclass(frozen=True)
class ElasticFlow(Policy):
    """Admit jobs whose deadlines can be met along with all others, and give spare devices where they return most.

    A job that arrives is promised as little as it needs, slot by slot; if that is not free, all promises are filled
    anew with the work that is left, by deadline. If one then fails, the job is dropped, and all stays as it was: so a
    promise, once made, can always be kept as long as rates are as they were. Where a job turns out to be slower, it is
    promised more; if that is not free, the plan tells that it will be late. Jobs without a deadline, jobs whose
    deadline is soft and cannot be met, and jobs of unknown length get spare devices alone. Counts are powers of two, on
    buddy blocks.

    Args:
        slot: seconds; promised levels change at multiples of it.
        reserve: devices that are not promised, so that as many may fail.
        order: the order in which jobs that arrive at once are tried: "arrival" (the trace's) or "deadline".
        quota: asked before a job is admitted; None: there is none.
        quotas: user -> device-seconds that may be set aside for the jobs of that user at a time, `*`: of each other
            user. A job beyond that waits until it fits, as long as its deadline can be met.
        admission: whether jobs can be refused. Without, this is "EDF + Elastic Scaling" (6.4): each job, the nearest
            deadline first, has as few devices as bring it in time, and who cannot be in time has all that are left.

    Raises:
        ValueError: a parameter out of its range.
    """

    name: ClassVar[str] = "elasticflow"

    slot: float = 240.0
    reserve: int = 0
    order: str = "arrival"
    quota: Quota | None = None
    quotas: Mapping[str, float] | None = None
    admission: bool = True

    def __post_init__(self) -> None:
        number = isinstance(self.slot, (int, float)) and not isinstance(self.slot, bool)
        if not (number and 0 < self.slot < math.inf):
            raise ValueError(f"slot is {self.slot!r}; it must be a number of seconds above 0, such as 240")
        if not isinstance(self.reserve, int) or isinstance(self.reserve, bool) or self.reserve < 0:
            raise ValueError(f"reserve is {self.reserve!r}; it must be a number of devices, 0 or more, such as 8")
        check_flag("admission", self.admission)
        if not self.admission and (self.quota is not None or self.quotas is not None):
            raise ValueError("quotas refuse jobs, which admission: false forbids; leave one of the two out")
        if self.order not in ORDERS:
            raise ValueError(f"order is {self.order!r}; it must be one of {', '.join(ORDERS)}")
        if self.quotas is not None and not isinstance(self.quotas, Mapping):
            raise ValueError(f"quotas is {self.quotas!r}; it must be a mapping of users to device-seconds")
        Quotas(self.quotas or {})

    @cached_property
    def _limits(self) -> Quotas:
        return Quotas(self.quotas or {})

    def plan(self, state: State) -> Plan:
        """Who is admitted, and who has how many devices from now on."""
        book, new = Promises.of(state, self.slot)
        capacity = min(state.cluster.size - self.reserve, state.capacity)
        if self.admission:
            if state.unavailable or book.owed or book.doubtful:
                book.mend(state, capacity)
            admitted, dropped = self._decide(book, new, state, capacity)
        else:
            admitted, dropped = [], {}
            for job in new:
                book.queue(job)
            book.serve(state, capacity)
        slot = slot_at(state.time, self.slot)
        allotted = allot(book, state, slot, state.capacity)
        return Plan(
            allotted.place(book, state),
            others_go_on=True,
            stopped=tuple(allotted.stopped),
            admitted=tuple(admitted),
            dropped=dropped,
            late=book.late(state, capacity) if book.owed else {},
            wake=allotted.rise * self.slot if allotted.rise < NEVER else math.inf,
            memo=book,
            promises=book.given,
            undecided=dict.fromkeys(book.beyond, BEYOND),
        )

    def _decide(
        self, book: Promises, new: list[JobState], state: State, capacity: int
    ) -> tuple[list[str], dict[str, str]]:
        """The jobs that are admitted, and those that are dropped and why; the others wait in the queue."""
        admitted, dropped = [], {}
        for job in self._sorted(new):
            why = self._admit(book, job, state, capacity)
            if not why and self._limits.exceeds(book, job, state, self.slot):
                book.remove(job.name)
                book.beyond.append(job.name)
            elif not why:
                admitted.append(job.name)
            elif self._waits(job):
                book.queue(job)
            else:
                dropped[job.name] = why
        return admitted, dropped

    def _waits(self, job: JobState) -> bool:
        """Whether a job that is not admitted may get spare devices."""
        return job.soft or job.remaining == math.inf

    def _sorted(self, new: list[JobState]) -> list[JobState]:
        if self.order == "deadline":
            return sorted(new, key=lambda job: (job.deadline, job.name))
        return sorted(new, key=lambda job: job.arrival)

    def _admit(self, book: Promises, job: JobState, state: State, capacity: int) -> str:
        """Admit a job; why not, if it is not."""
        if not book.admit(job, state, capacity):
            return f"its deadline, {job.deadline:g} s, cannot be met beside those that are promised"
        return self._refused(book, job, state)

    def _refused(self, book: Promises, job: JobState, state: State) -> str:
        """Why the quota refuses a job that was promised its deadline just now, which it then loses; empty if not."""
        share = float(book.claims[job.name].devices.sum()) * self.slot
        why = self._limits.refuses(job, share)
        if self.quota is not None and not why:
            why = self.quota(job, share, state)
        if why:
            book.remove(job.name)
        return why
