"""How many preprocessors work: chosen anew at each re-forming, by what those who train then can eat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from fleet.coordination.bookkeeper import Bookkeeper
from fleet.coordination.executor import Start
from fleet.scheduling.model.data_path import demand_of


class Feeding:
    """Gives each start the number of preprocessors that fill its lane; the others rest.

    Lanes that are open stay with those who fill them.

    Args:
        books: they know how fast preprocessors are; what is chosen is written there.
        share: whether jobs at the same place of a stream read together.
    """

    def __init__(self, books: Bookkeeper, share: bool) -> None:
        self._books, self._ledger, self._share = books, books.ledger, share

    def choose(self, round_: int, batch: Sequence[Start], paces: Mapping[str, float]) -> tuple[Start, ...]:
        """The starts of a round, in which each job trains at its pace, samples/s; those that go on are among them.

        Where there is one preprocessor, or nobody knows how fast they are or how fast a job trains, all work.
        """
        path = self._ledger.data_path
        guessed = any(self._ledger.jobs[job].guessed for job in {*self._ledger.running, *(each.job for each in batch)})
        if path is None or path.most < 2 or guessed:
            return tuple(batch)
        jobs = self._ledger.jobs
        demand = demand_of((stream, paces.get(job, 0.0) * jobs[job].state.passing) for job, stream in self._read(batch))
        working = path.needed(demand)
        self._books.record("preprocessing", round=round_, demand=demand, working=working, available=path.most)
        return tuple(replace(start, makers=working) for start in batch)

    def _read(self, batch: Sequence[Start]) -> Iterator[tuple[str, object]]:
        """Each job that trains, and what it reads."""
        starting = {start.job: start for start in batch}
        for job in self._ledger.running:
            if job not in starting:
                yield job, self._ledger.jobs[job].state.lane if self._share else job
        for job, start in starting.items():
            yield job, (self._ledger.jobs[job].stream, start.epoch, start.lane) if self._share else job
