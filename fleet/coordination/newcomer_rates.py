"""How fast a job trains that came while others train: it is measured before the policy hears of it."""

from __future__ import annotations

import math
from collections.abc import Callable

from fleet.coordination.bookkeeper import Bookkeeper
from fleet.coordination.coming import Coming
from fleet.coordination.executor import Executor, Measured, StopReason
from fleet.coordination.job_record import JobRecord
from fleet.journal import events
from fleet.scheduling.model.rates import RateCurve

SPARE_SECONDS = 60.0
"""So much sooner than its deadline a promised job must be done at its pace, to give its devices away for a while."""
SPARE_SECONDS_OF_FED = 20.0
"""And so much sooner, to go on without the trainers that prepare its samples."""


class NewcomerRates:
    """Measures jobs without rates, one after the other: on free devices, on those whose trainers prepare samples for
    jobs that do without meanwhile, or on those of a job that makes room.

    Args:
        executor: measures.
        books: what was measured is written there.

    Attributes:
        unhelped: jobs that begin anew on their devices first, without trainers that prepare their samples.
    """

    def __init__(self, executor: Executor, books: Bookkeeper) -> None:
        self._executor, self._books, self._ledger = executor, books, books.ledger
        self._leaving = ""  # the job that makes room
        self._rates: dict[int, float] = {}
        self._kind = ""  # of the devices on which they were measured
        self.measured = ""  # the job that is measured now
        self.unhelped = Coming()

    def advance(self, leave: Callable[[str, StopReason], None]) -> bool:
        """Do what comes next, if a job has no rates; return whether plans have to wait for it.

        Args:
            leave: asks a job to leave its devices.
        """
        if self.measured or self._leaving in self._ledger.running:
            return True
        self._leaving, self.unhelped = "", Coming()
        job = self._ledger.jobs.unrated
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

    def take(self, result: Measured) -> None:
        """Take in a measurement."""
        self.measured = ""
        self._rates[len(result.devices)] = result.rate
        self._kind = self._ledger.cluster.kind_of(result.devices[0])
        self._books.record(
            events.Profile(
                job=result.job,
                devices=result.devices,
                count=len(result.devices),
                rate=result.rate,
                batches=result.batches,
                seconds=result.seconds,
                forming=result.forming,
                kind=self._kind,
            )
        )

    def ended(self, job: str) -> None:
        """A job's group has ended; if it was to be measured, it has failed or lost a rank."""
        if job == self.measured:
            self.measured, self._rates = "", {}

    def _rate(self, job: JobRecord) -> None:
        rates, self._rates = self._rates, {}
        curve = RateCurve(rates, per_node=self._ledger.cluster.per_node(self._kind), workers=job.limit)
        self._books.record_rates(job.name, self._ledger.completed({self._kind: curve}), "profile")

    def _free_of_one_kind(self) -> list[int]:
        """The free devices of the kind that was begun with, else of that which has most of them."""
        cluster, held = self._ledger.cluster, {each for devices in self._ledger.held.values() for each in devices}
        lent, free = self._ledger.lent.devices(self._ledger.running), dict[str, list[int]]()
        for device in range(cluster.size):
            if device not in held | self._ledger.lost_devices | lent:
                free.setdefault(cluster.kind_of(device), []).append(device)
        if self._rates:
            return free.get(self._kind, [])
        return max(free.values(), key=len, default=[])

    def _make_room(self, leave: Callable[[str, StopReason], None]) -> bool:
        """Have devices become free; return whether any will."""
        self.unhelped = self._who_does_without_help()
        self._leaving = "" if self.unhelped.devices else self._who_makes_room()
        leaving = list(self.unhelped.devices) or ([self._leaving] if self._leaving else [])
        for job in leaving:
            leave(job, "policy")
        return bool(leaving)

    def _who_does_without_help(self) -> Coming:
        """The jobs for which trainers prepare samples, and their devices; none if one of them has too little time."""
        running, held = self._ledger.running, self._ledger.held
        helped = self._ledger.lent.readers(running, self._ledger.lent.devices(running) - self._ledger.lost_devices)
        jobs = [self._ledger.jobs[name] for name in helped]
        late = any(job.state.admitted and _spare(job) < SPARE_SECONDS_OF_FED for job in jobs)
        if late:
            return Coming()
        lanes = {job.name: job.state.lane for job in jobs}  # they go on reading together
        return Coming({job.name: held[job.name] for job in jobs}, lanes, keys={"lent": 0})

    def _who_makes_room(self) -> str:
        """A job that is promised nothing, the fewer devices the better, or who has most time to spare; "": nobody."""
        running = [self._ledger.jobs[name] for name in sorted(self._ledger.running)]
        others = [job for job in running if not job.state.admitted]
        if others:
            return min(others, key=lambda job: job.state.held).name
        spare = {job.name: _spare(job) for job in running}
        chosen = max(spare, key=lambda name: spare[name], default="")
        return chosen if spare.get(chosen, -math.inf) >= SPARE_SECONDS else ""


def _spare(job: JobRecord) -> float:
    """Seconds by which it will be done before its deadline at its pace."""
    return job.state.deadline - job.expected_end
