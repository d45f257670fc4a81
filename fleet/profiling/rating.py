"""Where a run's rate curves come from: a file, the run's own earlier profile, or measurements now."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone

from fleet.coordination.bookkeeper import Bookkeeper
from fleet.profiling.plan import Measurement, demand, first_pass, preprocessors_needed, second_pass
from fleet.profiling.profiler import Profiler, Result
from fleet.profiling.store import RateProfile
from fleet.scheduling.model.rates import RateCurve

THROUGHPUT_SECONDS = 0.5


@dataclass
class Rating:
    """Gives every job of the books a rate curve.

    Args:
        profiler: measures; None if measuring is not to be done (a rehearsal brings all rates).
        books: measurements are written there; unfinished jobs are rated.
        known: rates in samples/s by job name, from files or an earlier session.
        begun: rates of jobs that a session measured which was stopped before it had all of them.
    """

    profiler: Profiler | None
    books: Bookkeeper
    known: Mapping[str, Mapping[int, float]]
    begun: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    measured: dict[str, dict[int, float]] = field(default_factory=dict)
    failures: dict[str, Result] = field(default_factory=dict)
    throughput: dict[int, float] = field(default_factory=dict)

    def rate(self) -> None:
        """Tell the books each job's rate curve; a job whose code fails while it is measured gets none, and is in
        `failures`.
        """
        ledger = self.books.ledger
        jobs, per_node = ledger.unfinished, max(ledger.cluster.devices_per_node)
        self.measured = {job.name: dict(self.known.get(job.name, {})) for job in jobs}
        unknown = [job.name for job in jobs if not self.measured[job.name]]
        if self.profiler is not None and unknown:
            self._measure(unknown, {job.name: job.limit for job in jobs})
            if self.is_stopped:
                return  # what is measured already stands in the journal: the next session goes on with it
        for job in jobs:
            rates = self.measured[job.name]
            if rates:
                curve = RateCurve(rates, per_node=per_node, workers=job.limit)
                self.books.record_rates(job.name, curve, "profile" if job.name in unknown else "file")

    @property
    def is_stopped(self) -> bool:
        """Whether measurements were left out, since a stop was asked for."""
        return self.profiler is not None and self.profiler.is_stopped

    def _measure(self, unknown: list[str], limits: Mapping[str, int]) -> None:
        """Steps 1 to 3 of FLEET, MLSys'20, Appendix B.3."""
        assert self.profiler is not None
        for job in unknown:
            self.measured[job] = dict(self.begun.get(job, {}))
        self._take(self.profiler.measure(self._missing(first_pass(unknown))))
        single = {job: self.measured[job][1] for job in unknown if 1 in self.measured[job]}
        if single:
            cluster = self.books.ledger.cluster
            wanted = second_pass(single, limits, max(cluster.devices_per_node), cluster.size)
            self._take(self.profiler.measure(self._missing(wanted)))

    def _missing(self, wanted: Iterable[Measurement]) -> list[Measurement]:
        return [each for each in wanted if each.count not in self.measured[each.job]]

    def _take(self, results: Iterable[Result]) -> None:
        for result in results:
            job, count = result.measurement.job, result.measurement.count
            if result.failure is not None:
                self.failures.setdefault(job, result)
                self.measured[job] = {}
                continue
            self.measured[job][count] = result.rate
            self.books.record(
                "profile", job=job, devices=result.devices, count=count, rate=result.rate, batches=result.batches,
                seconds=result.seconds, forming=result.forming,
            )  # fmt: skip

    def choose_preprocessors(self, data: list[str], available: int, streams: Mapping[str, str], share: bool) -> int:
        """How many preprocessors the trainers need: the fewest that meet the demand, at most those there are."""
        single = {job: rates[1] for job, rates in self.measured.items() if 1 in rates}
        if self.profiler is None or not single or self.is_stopped:
            return available
        counts = sorted({1, available, *(2**k for k in range(1, 12) if 2**k < available)})
        self.throughput = self.profiler.throughput(data, counts, THROUGHPUT_SECONDS)
        wanted = demand(single, streams, self.books.ledger.cluster.size, share)
        chosen = preprocessors_needed(self.throughput, wanted)
        self.books.journal.write("preprocessors", counts=self.throughput, demand=wanted, chosen=chosen or available)
        if chosen is None:
            best = max(self.throughput.values())
            self.books.journal.write(
                "warning", job=None,
                text=f"the trainers could eat {wanted:.0f} samples/s, {available} preprocessors make {best:.0f}: "
                f"they will wait for data; give about {round(available * wanted / best + 0.5)} preprocessors",
            )  # fmt: skip
        return chosen or available

    def profile(self, fingerprints: Mapping[str, str]) -> RateProfile:
        """All that is known now, to be stored and used again."""
        rates = {fingerprints[job]: rates for job, rates in self.measured.items() if rates}
        names = {fingerprints[job]: job for job in self.measured}
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return RateProfile(platform.node(), now, rates, names, self.throughput)
