"""Where a run's rate curves come from: a file, the run's own earlier profile, or measurements now."""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone

from fleet.coordination.live_state import Recorder
from fleet.journal import events
from fleet.journal.whole_files import RateProfile
from fleet.scheduling.model.rates import RateCurve
from fleet.session.measuring.plan import Measurement, demand, first_pass, preprocessors_needed, second_pass
from fleet.session.measuring.profiler import MeasurementResult, Profiler
from preprocess.making.costs import MadeRates

THROUGHPUT_SECONDS = 0.5


Rates = Mapping[str, Mapping[int, float]]
"""Job -> number of devices -> samples/s."""


@dataclass
class Rating:
    """Gives every job of the books a rate curve on each kind of device.

    Args:
        profiler: measures; None if measuring is not to be done (a rehearsal brings all rates).
        books: measurements are written there; unfinished jobs are rated.
        known: by kind of device, the rates from files or an earlier session; "" where all are alike.
        begun: by kind, the rates of jobs that a session measured which was stopped before it had all of them.
        guess: guesses the curves by kind of a job that is to be measured in training; None: all are measured now.
        first: jobs with guesses that are measured now all the same.
    """

    profiler: Profiler | None
    books: Recorder
    known: Mapping[str, Rates]
    begun: Mapping[str, Rates] = field(default_factory=dict)
    guess: Callable[[str], Mapping[str, RateCurve]] | None = None
    first: Collection[str] = ()
    measured: dict[str, dict[str, dict[int, float]]] = field(default_factory=dict)  # kind -> job -> count -> samples/s
    failures: dict[str, MeasurementResult] = field(default_factory=dict)
    guessed: frozenset[str] = frozenset()
    throughput: dict[int, float] = field(default_factory=dict)

    def rate(self) -> None:
        """Tell the books each job's rate curves; a job whose code fails while it is measured gets none, and is in
        `failures`.
        """
        jobs = [job.name for job in self.books.state.unfinished]
        self.measured = {kind: {job: dict(rates.get(job, {})) for job in jobs} for kind, rates in self.known.items()}
        for kind, rates in self.measured.items():
            begun = self.begun.get(kind, {})
            rates.update({job: dict(begun.get(job, {})) for job in jobs if not rates[job] and self._waits(job)})
        unknown = {
            kind: [job for job in jobs if not rates[job] and not self._waits(job)]
            for kind, rates in self.measured.items()
        }
        if self.profiler is not None and any(unknown.values()):
            self._measure(unknown)
            if self.is_stopped:
                return  # what is measured already stands in the journal: the next session goes on with it
        for job in jobs:
            curves = self._curves(job)
            if curves:
                measured = any(job in names for names in unknown.values())
                self.books.record_rates(job, self.books.state.completed(curves), "profile" if measured else "file")
        self.guessed = frozenset(job for job in jobs if self._waits(job) and not self._curves(job))
        if self.guess is not None:
            for job in filter(self.guessed.__contains__, jobs):
                self.books.record_rates(job, self.guess(job), "guessed")

    def _waits(self, job: str) -> bool:
        """Whether a job is not measured before it trains."""
        return self.guess is not None and job not in self.first

    @property
    def is_stopped(self) -> bool:
        """Whether measurements were left out, since a stop was asked for."""
        return self.profiler is not None and self.profiler.is_stopped

    def _curves(self, job: str) -> dict[str, RateCurve]:
        ledger = self.books.state
        return {
            kind: RateCurve(rates[job], per_node=ledger.cluster.per_node(kind), workers=ledger.jobs[job].limit)
            for kind, rates in self.measured.items()
            if rates.get(job)
        }

    def _measure(self, unknown: Mapping[str, list[str]]) -> None:
        """Steps 1 to 3 of FLEET, MLSys'20, Appendix B.3, on each kind of device."""
        assert self.profiler is not None
        for kind, jobs in unknown.items():
            begun = self.begun.get(kind, {})
            self.measured[kind].update({job: dict(begun.get(job, {})) for job in jobs})
        alone = [each for kind, jobs in unknown.items() for each in first_pass(jobs, kind)]
        self._take(self.profiler.measure(self._missing(alone)))
        wider = [each for kind, jobs in unknown.items() for each in self._second_pass(kind, jobs)]
        if wider:
            self._take(self.profiler.measure(self._missing(wider)))

    def _second_pass(self, kind: str, jobs: Collection[str]) -> list[Measurement]:
        single = {job: rates[1] for job, rates in self.measured[kind].items() if job in jobs and 1 in rates}
        if not single:
            return []
        cluster, known = self.books.state.cluster, self.books.state.jobs
        limits, there = {job: known[job].limit for job in single}, cluster.counts().get(kind, cluster.size)
        return second_pass(single, limits, cluster.per_node(kind), there, kind)

    def _missing(self, wanted: Iterable[Measurement]) -> list[Measurement]:
        return [each for each in wanted if each.count not in self.measured[each.kind][each.job]]

    def _take(self, results: Iterable[MeasurementResult]) -> None:
        for result in results:
            job, count, kind = result.measurement.job, result.measurement.count, result.measurement.kind
            if result.failure is not None:
                self.failures.setdefault(job, result)
                for rates in self.measured.values():
                    rates[job] = {}
                continue
            self.measured[kind][job][count] = result.rate
            self.books.record(
                events.Profile(
                    job=job,
                    devices=result.devices,
                    count=count,
                    rate=result.rate,
                    batches=result.batches,
                    seconds=result.seconds,
                    forming=result.forming,
                    kind=kind,
                )
            )

    def choose_preprocessors(
        self, data: list[str], available: int, streams: Mapping[str, str], share: bool, lent: int = 0,
        weighed: bool = False,
    ) -> int:  # fmt: skip
        """How many preprocessors the trainers need: the fewest that meet the demand, at most those there are.

        As long as rates are guesses nobody knows the demand; then all are needed, and they are timed if there are
        several, or trainers that may help (`lent`), for those who choose later, or several data sets, if the policy
        weighs what each takes of them (`weighed`).
        """
        single: dict[str, float] = {}
        for of_kind in self.measured.values():
            for job, rates in of_kind.items():
                single[job] = max(rates.get(1, 0.0), single.get(job, 0.0))
        jobs = self.books.state.jobs
        single = {job: rate * jobs[job].state.passing for job, rate in single.items() if rate}
        known = bool(single) if not self.guessed else available + lent > 1 or (weighed and len(data) > 1)
        if self.profiler is None or not known or self.is_stopped:
            return available
        counts = sorted({1, available, *(2**k for k in range(1, 12) if 2**k < available)})
        made = self.profiler.throughput(data, counts, THROUGHPUT_SECONDS)
        self.throughput = {count: each.later for count, each in made.items()}
        of_data = self._of_data(data, available, made[available])
        wanted = None if self.guessed else demand(single, streams, self.books.state.cluster.size, share)
        chosen = available if wanted is None else preprocessors_needed(self.throughput, wanted)
        self.books.record(
            events.Preprocessors(
                counts=self.throughput,
                of_data={name: each.later for name, each in of_data.items()},
                of_new={name: each.first for name, each in of_data.items()},
                demand=wanted,
                chosen=chosen or available,
            )
        )
        if chosen is None and wanted is not None:
            best = max(self.throughput.values())
            self.books.journal.write(
                events.Warned(
                    text=f"the trainers could eat {wanted:.0f} samples/s, {available} preprocessors make {best:.0f}: "
                    f"they will wait for data; give about {round(available * wanted / best + 0.5)} preprocessors"
                )
            )
        return chosen or available

    def _of_data(self, data: list[str], available: int, of_all: MadeRates) -> dict[str, MadeRates]:
        """What all preprocessors make of each data set, if they make nothing else."""
        assert self.profiler is not None
        if len(data) == 1:
            return {data[0]: of_all}
        return {name: self.profiler.throughput([name], [available], THROUGHPUT_SECONDS)[available] for name in data}

    def profile(self, fingerprints: Mapping[str, Mapping[str, str]]) -> RateProfile:
        """All that is known now, to be stored and used again.

        Args:
            fingerprints: by kind of device and job.
        """
        keys = {(kind, job): fingerprints[kind][job] for kind, rates in self.measured.items() for job in rates}
        rates = {key: self.measured[kind][job] for (kind, job), key in keys.items() if self.measured[kind][job]}
        names = {key: job for (_, job), key in keys.items()}
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return RateProfile(platform.node(), now, rates, names, self.throughput)
