"""How many preprocessors work: chosen anew at each re-forming, by what those who train then can eat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fleet.coordination.bookkeeper import Bookkeeper
from fleet.coordination.executor import Start
from fleet.journal import events
from fleet.scheduling.model.data_path import DataPath, demand_of
from fleet.scheduling.model.state import Allocation

FASTER = 1.1
"""Networks are formed anew for more trainers that prepare samples if these let them train so many times as fast."""
WORTH = 2.0
"""And if that saves so many times what forming takes."""


class Feeding:
    """Gives each start the preprocessors that fill its lane, and the trainers that help them; the others rest.

    Lanes that are open stay with those who fill them.

    Args:
        books: they know how fast preprocessors are; what is chosen is written there.
        share: whether jobs at the same place of a stream read together.
    """

    def __init__(self, books: Bookkeeper, share: bool) -> None:
        self._books, self._ledger, self._share = books, books.ledger, share

    def choose(self, round_: int, batch: Sequence[Start], allocation: Allocation) -> tuple[Start, ...]:
        """The starts of a round, of which this is the whole allocation; those that go on are among them.

        Where there is one preprocessor and nobody to help it, or nobody knows how fast they are or how fast a job
        trains, all preprocessors work.
        """
        path, lent = self._ledger.data_path, self._ledger.lent.counted
        if path is None or path.most + lent < 2 or any(self._ledger.jobs[job].guessed for job in allocation):
            return tuple(batch)
        demand = self._demand(batch, allocation)
        needed = path.on(path.most + lent).needed(demand) if lent else path.needed(demand)
        working = min(needed, path.most)
        trainers = self._without_network(batch)[: needed - working]
        self._books.record(
            events.Preprocessing(round=round_, demand=demand, working=working, available=path.most, trainers=trainers)
        )
        return tuple(replace(start, makers=working, prepared_by=trainers) for start in batch)

    def formed_anew(self, new: Allocation, allocation: Allocation, lent: int) -> dict[str, tuple[int, ...]]:
        """All who start anew: those of a plan, those whose samples a trainer makes that is wanted, and those who train
        much faster if trainers make more of their samples.

        Args:
            allocation: all who train from now on.
            lent: how many trainers may prepare samples then.
        """
        if not self._ledger.lent.lending.most:
            return {**new}
        wanted = {device for devices in new.values() for device in devices}
        others = {job: tuple(allocation[job]) for job in self._ledger.running if job in allocation and job not in new}
        readers = self._ledger.lent.readers(others, wanted)
        if not readers and self._is_worth_forming(others, allocation, lent):
            readers = list(others)
        return {**new, **{job: others[job] for job in readers}}

    def _is_worth_forming(self, others: Allocation, allocation: Allocation, lent: int) -> bool:
        """Whether those who would go on train so much faster with so many trainers that prepare samples."""
        path, known = self._ledger.data_path, len(self._ledger.lent.devices(others))
        jobs = [self._ledger.jobs[job] for job in others]
        if path is None or lent <= known or not jobs or any(job.guessed for job in jobs):
            return False
        demand = self._demand((), allocation)
        now, then = (min(demand, _made(path, count)) for count in (known, lent))
        if not then or then < FASTER * now:
            return False
        lasts = max(job.expected_end - job.state.ready for job in jobs) * demand / now  # as slowly as they are fed
        return lasts * (1 - now / then) > WORTH * self._ledger.longest_forming

    def _without_network(self, batch: Sequence[Start]) -> tuple[int, ...]:
        """The devices that no job has, those first whose trainers prepare samples now, then the last ones."""
        held = [*self._ledger.held.values(), *(start.devices for start in batch)]
        taken = self._ledger.lost_devices.union(*held)
        now = self._ledger.lent.devices(self._ledger.running)
        free = [device for device in range(self._ledger.cluster.size) if device not in taken]
        return tuple(sorted(free, key=lambda device: (device not in now, -device)))

    def _demand(self, batch: Sequence[Start], allocation: Allocation) -> float:
        """Samples/s that all jobs eat at their paces there."""
        jobs = self._ledger.jobs
        paces = {job: self._ledger.pace(job, devices) for job, devices in allocation.items()}
        return demand_of((stream, paces.get(job, 0.0) * jobs[job].state.passing) for job, stream in self._read(batch))

    def _read(self, batch: Sequence[Start]) -> Iterator[tuple[str, object]]:
        """Each job that trains, and what it reads."""
        starting = {start.job: start for start in batch}
        for job in self._ledger.running:
            if job not in starting:
                yield job, self._ledger.jobs[job].state.lane if self._share else job
        for job, start in starting.items():
            yield job, (self._ledger.jobs[job].stream, start.epoch, start.lane) if self._share else job


def _made(path: DataPath, lent: int) -> float:
    """Samples/s of all preprocessors and so many trainers."""
    return path.on(path.most + lent).made_by(path.most + lent)
