"""Which trainers prepare samples now, and for whom: a part of the run's books."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field

from fleet.scheduling.model.lending import NONE, Lending


@dataclass
class LentTrainers:
    """Mutable, but only by what happened: each method is named after an event.

    Attributes:
        lending: how many trainers may prepare.
        counted: how many the last plan counts with.
    """

    lending: Lending = NONE
    counted: int = 0
    _of_job: dict[str, tuple[int, ...]] = field(default_factory=dict)  # who fill the lane that it has read last

    def planned(self, counted: int | None) -> None:
        """A plan counts with so many; None: with those of before."""
        self.counted = self.counted if counted is None else counted

    def started(self, job: str, devices: Iterable[int]) -> None:
        """The trainers of these devices fill the lane that the job reads from now on."""
        self._of_job.pop(job, None)
        if lent := tuple(devices):
            self._of_job[job] = lent

    def reopened(self) -> None:
        """A session begins: nobody prepares."""
        self.counted, self._of_job = 0, {}

    @property
    def times(self) -> float:
        """How many times what preprocessors make alone comes out with those that are counted."""
        return self.lending.times(self.counted)

    @property
    def most_times(self) -> float:
        """The same with all that may."""
        return self.lending.times(self.lending.most)

    def devices(self, running: Container[str]) -> frozenset[int]:
        """Those whose trainers prepare samples for jobs that run."""
        return frozenset(device for job, lent in self._of_job.items() if job in running for device in lent)

    def readers(self, running: Mapping[str, object], devices: Collection[int]) -> list[str]:
        """The jobs that run and read a lane which a trainer of these devices fills."""
        if not self._of_job:
            return []
        return [job for job in running if not set(devices).isdisjoint(self._of_job.get(job, ()))]
