"""What jobs with a batch range train on one device with the ends of that range."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fleet.coordination.bookkeeper import Bookkeeper
from fleet.coordination.job_record import JobRecord
from fleet.profiling.plan import Measurement
from fleet.profiling.profiler import Profiler, Result


@dataclass
class BatchEnds:
    """Tells the books how fast a job trains alone with the least and the most samples that it may have in a step.

    Between these and the job's own batch a policy goes by `BatchScaling`. An end that cannot be trained, as it does not
    fit on the device, is cut off: the range then ends with the job's own batch.

    Args:
        profiler: measures; None: there is nothing to measure with, and times of steps are taken to be proportional.
        books: measurements are written there.
        known: job, samples of a virtual worker -> samples/s, where an earlier session has measured it.
    """

    profiler: Profiler | None
    books: Bookkeeper
    known: Callable[[str, int], float | None]
    measured: dict[tuple[str, int], float] = field(default_factory=dict)

    def rate(self) -> None:
        """Rate the jobs that have a rate curve and may still choose."""
        if self.profiler is None:
            return
        wanted = []
        for job in self.books.ledger.unfinished:
            if job.batches is None or job.curve is None:
                continue
            for size in _ends(job):
                rate = self.known(job.name, size)
                if rate is None:
                    wanted.append(Measurement(job.name, 1, size, job.by_kind.home if job.by_kind else ""))
                else:
                    self.measured[job.name, size] = rate
                    self.books.ledger.rated_with(job.name, size * job.limit, rate)
        for result in self.profiler.measure(wanted):
            self._book(self.books.ledger.jobs[result.measurement.job], result)

    def _book(self, job: JobRecord, result: Result) -> None:
        size = result.measurement.batch_size
        if result.failure is not None:
            self._cut(job, size, result.failure.error)
            return
        self.measured[job.name, size] = result.rate
        self.books.record(
            "batch_profile", job=job.name, devices=result.devices, batch=size * job.limit, rate=result.rate,
            batches=result.batches, seconds=result.seconds,
        )  # fmt: skip

    def _cut(self, job: JobRecord, size: int, error: str) -> None:
        assert job.batches is not None and job.batch is not None
        batch = size * job.limit
        least, most = (job.batch, job.batches.most) if batch < job.batch else (job.batches.least, job.batch)
        self.books.ledger.range_cut(job.name, least, most)
        text = f"a step of {batch} samples cannot be trained on a device ({error}); its batch_range is cut there"
        self.books.journal.write("warning", text=text, job=job.name)


def _ends(job: JobRecord) -> Iterator[int]:
    """Samples of a virtual worker at the ends of the range, other than the job's own."""
    assert job.batches is not None and job.batch is not None
    for size in dict.fromkeys(job.batches.sizes):
        if size * job.limit != job.batch:
            yield size
