"""ElasticFlow: deadlines that are promised are met (Gu et al., ASPLOS'23)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

from fleet.scheduling.elasticflow.allotment import allot
from fleet.scheduling.elasticflow.claims import NEVER
from fleet.scheduling.elasticflow.promises import Promises
from fleet.scheduling.elasticflow.quotas import Quotas
from fleet.scheduling.elasticflow.shares import slot_at
from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.policy import Policy
from fleet.scheduling.model.state import State
from fleet.scheduling.policies.checks import check_flag

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
