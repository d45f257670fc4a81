"""What jobs train on an accelerator with one or several of their trainers there, and nobody else's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from fleet.coordination.job_record import JobRecord
from fleet.coordination.live_state import Recorder
from fleet.journal import events
from fleet.session.measuring.plan import Measurement
from fleet.session.measuring.profiler import Profiler


@dataclass
class ExecutorRates:
    """Tells the books how fast a job is with 1, 2, ... executors on an accelerator (EasyScale, SC'23, 3.4.1).

    Args:
        profiler: measures; None if measuring is not to be done.
        books: what is measured or known is written there.
        known: job -> executors -> samples/s, as far as a file or an earlier session has them.
        most: executors on an accelerator; 1: nothing is measured.
        measured: job -> executors -> samples/s, what is known in the end.
    """

    profiler: Profiler | None
    books: Recorder
    known: Callable[[str], Mapping[int, float]]
    most: int
    measured: dict[str, dict[int, float]] = field(default_factory=dict)

    def rate(self) -> None:
        """A job of which one measurement fails keeps to the executors that were measured before."""
        if self.most == 1:
            return
        jobs = [job for job in self.books.state.unfinished if job.curve is not None]
        self.measured = {job.name: dict(self.known(job.name)) for job in jobs}
        wanted = [one for job in jobs for one in self._missing(job)]
        for result in self.profiler.measure(wanted) if self.profiler is not None else ():
            if result.failure is None:
                self.measured[result.measurement.job][result.measurement.count] = result.rate
        for job in jobs:
            self._tell(job)

    def _missing(self, job: JobRecord) -> Iterator[Measurement]:
        for count in range(1, min(self.most, job.limit) + 1):
            if count not in self.measured[job.name]:
                yield Measurement(job.name, count, kind=job.by_kind.home if job.by_kind else "", together=True)

    def _tell(self, job: JobRecord) -> None:
        rates = self.measured[job.name]
        for count in range(1, min(self.most, job.limit) + 1):
            if count not in rates:
                break
            self.books.record(events.ExecutorProfile(job=job.name, executors=count, rate=rates[count]))
