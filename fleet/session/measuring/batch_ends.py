"""What jobs whose batch a policy chooses train on one device with the ends of its range."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from fleet.coordination.job_record import JobRecord
from fleet.coordination.live_state import Recorder
from fleet.journal import events
from fleet.session.measuring.plan import Measurement
from fleet.session.measuring.profiler import MeasurementResult, Profiler

PROBES = 4
"""Batches that are tried between one that fits on a device and one that does not."""


@dataclass
class BatchEnds:
    """Tells the books how fast a job trains alone with the least and the most samples that it may have in a step.

    Between these and the job's own batch a policy goes by `BatchScaling`. Where the largest batch cannot be trained, as
    it does not fit on the device, the largest that does is looked for: a job whose batch changes cuts larger ones
    into parts, and a job that chooses once has its range end with its own batch.

    Args:
        profiler: measures; None: there is nothing to measure with.
        books: measurements are written there.
        known: job, samples of a virtual worker -> samples/s, where an earlier session has measured it.
        listed: job -> samples of a step -> samples/s, where a person has listed them.
    """

    profiler: Profiler | None
    books: Recorder
    known: Callable[[str, int], float | None]
    listed: Callable[[str], Mapping[int, float]] = lambda job: {}
    measured: dict[tuple[str, int], float] = field(default_factory=dict)

    def rate(self) -> None:
        """Rate the jobs that have a rate curve and may still choose."""
        wanted = []
        for job in self.books.state.unfinished:
            if job.batches is not None and job.curve is not None:
                self._take_listed(job)
                wanted += [self._measurement(job, size) for size in _ends(job) if not self._is_known(job, size)]
        for result in list(self.profiler.measure(wanted)) if self.profiler is not None else ():
            self._book(self.books.state.jobs[result.measurement.job], result)

    def _take_listed(self, job: JobRecord) -> None:
        for batch, rate in self.listed(job.name).items():
            if batch != job.batch:
                self.books.note(self.books.state.rated_with, job.name, batch, rate)

    def _is_known(self, job: JobRecord, size: int) -> bool:
        if self.profiler is None or size * job.limit in self.books.state.jobs[job.name].alone:
            return True
        rate = self.known(job.name, size)
        if rate is not None:
            self.measured[job.name, size] = rate
            self.books.note(self.books.state.rated_with, job.name, size * job.limit, rate)
        return rate is not None

    def _measurement(self, job: JobRecord, size: int) -> Measurement:
        return Measurement(job.name, 1, size, job.by_kind.home if job.by_kind else "")

    def _book(self, job: JobRecord, result: MeasurementResult) -> None:
        size = result.measurement.batch_size
        if result.failure is not None:
            self._meet_limit(job, size, result.failure.error)
            return
        self.measured[job.name, size] = result.rate
        self.books.record(
            events.BatchProfile(
                job=job.name,
                devices=result.devices,
                batch=size * job.limit,
                rate=result.rate,
                batches=result.batches,
                seconds=result.seconds,
            )
        )

    def _meet_limit(self, job: JobRecord, size: int, error: str) -> None:
        """A step with `size` samples of each worker cannot be trained on a device."""
        assert job.batches is not None and job.batch is not None
        batch, why = size * job.limit, f"a step of {size * job.limit} samples cannot be trained on a device ({error})"
        if job.schedule is not None and batch > job.batch:
            fitting = self._largest(job, job.batch // job.limit, size)
            self.books.note(self.books.state.fits, job.name, fitting)
            text = f"{why}; batches of more than {fitting * job.limit} are cut into parts"
        else:
            least, most = (job.batch, job.batches.most) if batch < job.batch else (job.batches.least, job.batch)
            self.books.note(self.books.state.range_cut, job.name, least, most)
            text = f"{why}; its range of batches is cut there"
        self.books.journal.write(events.Warned(text=text, job=job.name))

    def _largest(self, job: JobRecord, fits: int, fails: int) -> int:
        """The most samples of a worker that were seen to fit; the gap to those that do not is halved a few times."""
        assert self.profiler is not None
        for _ in range(PROBES):
            middle = (fits + fails) // 2
            if middle == fits:
                break
            for result in list(self.profiler.measure([self._measurement(job, middle)])):
                if result.failure is None:
                    fits = middle
                    self._book(job, result)
                else:
                    fails = middle
        return fits


def _ends(job: JobRecord) -> Iterator[int]:
    """Samples of a virtual worker at the ends of the range, other than the job's own."""
    assert job.batches is not None and job.batch is not None
    for size in dict.fromkeys(job.batches.sizes):
        if size * job.limit != job.batch:
            yield size
