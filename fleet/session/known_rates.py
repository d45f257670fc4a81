"""Rates of jobs that need not be measured: from a rehearsal's table, from profile files, from earlier sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fleet.journal import events
from fleet.journal.directory import RunDirectory
from fleet.journal.journal import read_journal
from fleet.journal.whole_files import RateProfile
from fleet.spec.sections import profile_files
from fleet.workers.agreement import BadInput
from fleet.workers.runtime import Runtime

RatesByJob = Mapping[str, Mapping[int, float]]
"""Job -> number of devices -> samples/s."""


EXECUTORS = "executors"
"""Files name `JOB, executors` what a job trains with 1, 2, ... executors on one accelerator."""


def executors_of(model: str) -> str:
    """Under what device the fingerprint of such rates is made."""
    return f"{model}, {EXECUTORS}"


@dataclass
class KnownRates:
    """The rates that are known when a session begins.

    Args:
        runtime: the jobs and data.
        directory: the run directory.
        device: the model of the devices that train, or their kind.
        again: whether the run's own measurements do not count, since its user wants them made anew.
        kind: their kind, under which older files have rates of accelerators; "" where `device` says it.
        named: the kind of these devices where the run has several: only what was measured on it counts.
    """

    runtime: Runtime
    directory: RunDirectory
    device: str
    again: bool = False
    kind: str = ""
    named: str = ""

    def of_all(self) -> RatesByJob:
        """Rates by job; jobs that nobody knows are left out.

        Raises:
            ProfileError: a file holds none.
            BadInput: a rehearsal has none for some job.
        """
        known = {job.name: rates for job in self.runtime.spec.jobs if (rates := self.of(self.runtime, job.name))}
        missing = [job.name for job in self.runtime.spec.jobs if job.name not in known]
        if self.runtime.rehearsal is not None and missing and self.runtime.spec.search is None:
            raise BadInput(
                f"a rehearsal waits as long as rate curves say, and there is none for {', '.join(missing)}; "
                "give rehearse.rates, or profile.file from `fleet profile SPEC --out FILE`"
            )
        return known

    def of(self, runtime: Runtime, job: str) -> dict[int, float]:
        """The rates of one job of `runtime`; empty if nothing knows them."""
        if isinstance(self._table, Mapping):
            speed = runtime.spec.rehearse.speeds.get(self.named, 1.0) if runtime.spec.rehearse else 1.0
            rates = self._table.get(job, {})
            return {count: rate * speed for count, rate in rates.items()} or self._guessed.get(job, {})
        fingerprint, of_kind = runtime.fingerprint(job, self.device), runtime.fingerprint(job, self.kind or self.device)
        for profile in self._profiles:
            by_name = profile.named(f"{job}, {self.named}" if self.named else job)
            if rates := profile.measured(fingerprint) or profile.measured(of_kind) or by_name:
                return dict(rates)
        return self._guessed.get(job, {})

    def begun(self, learnt: bool = False) -> RatesByJob:
        """Rates that earlier sessions measured on such devices, of jobs with which they did not come to an end.

        Args:
            learnt: also what training has told of jobs.
        """
        found: dict[str, dict[int, float]] = {}
        alike, measuring = False, (events.Profile, events.Timed) if learnt else (events.Profile,)
        for event in read_journal(self.directory.journal):
            if isinstance(event, events.Cluster):
                alike = any(_alike(rank, self.named, self.device) for rank in event.ranks)
            elif isinstance(event, measuring) and alike and event.kind == self.named:
                found.setdefault(event.job, {})[event.count] = event.rate
            elif isinstance(event, events.Rates) and event.source == "training":
                if alike and learnt and (measured := event.kinds.get(self.named) if self.named else event.measured):
                    found[event.job] = dict(measured)
            elif isinstance(event, events.Rates) and event.source != "guessed":
                found.pop(event.job, None)
        return found

    def by_batch(self, job: str) -> dict[int, float]:
        """Samples/s on one device by global batch: of a rehearsal's table, or what files name `JOB, batch N`."""
        if self.runtime.rehearsal is not None and (rehearsed := self.rehearsed_by_batch(job)):
            return rehearsed
        found: dict[int, float] = {}
        for profile in reversed(self._profiles):
            found |= profile.by_batch(job)
        return found

    def rehearsed_by_batch(self, job: str) -> dict[int, float]:
        """Samples/s by global batch that the table of a rehearsal tells, whether this is a rehearsal or not."""
        rehearse = self.runtime.spec.rehearse
        if rehearse is None:
            return {}
        speed = rehearse.speeds.get(self.named, 1.0)
        return {batch: rate * speed for batch, rate in rehearse.batches.get(job, {}).items()}

    def alone(self, runtime: Runtime, job: str, batch_size: int) -> float | None:
        """Samples/s on one device with another batch size of each virtual worker, if a file has it."""
        fingerprint = runtime.with_batch(job, batch_size).fingerprint(job, self.device)
        return next((rates[1] for file in self._profiles if 1 in (rates := file.measured(fingerprint))), None)

    @cached_property
    def _table(self) -> Mapping[str, Mapping[int, float]] | str | None:
        spec = self.runtime.spec
        return spec.rehearse.rates if spec.rehearse and self.runtime.rehearsal else None

    @cached_property
    def _profiles(self) -> list[RateProfile]:
        spec = self.runtime.spec
        files: list[Path] = [spec.file(name) for name in (self._table, spec.profile.file) if isinstance(name, str)]
        files += [self.directory.profile] if self.directory.profile.exists() and not self.again else []
        return [RateProfile.read(*(profile_files(file) or [file])) for file in files]

    @cached_property
    def _guessed(self) -> dict[str, dict[int, float]]:
        """Rates of jobs that were added to a rehearsal, which cannot measure them."""
        if self.runtime.rehearsal is None:
            return {}
        told = (event for event in read_journal(self.directory.journal) if isinstance(event, events.Rates))
        return {event.job: dict(event.kinds.get(self.named, event.measured)) for event in told}


def _alike(rank: events.Rank, kind: str, model: str) -> bool:
    """Whether a rank of the journal trained on such a device."""
    return rank.kind == kind if kind else _model(rank) == model


def _model(rank: events.Rank) -> str | None:
    """What a rank of the journal trained on, as the cluster map tells it; an older journal has the kind alone."""
    kind = rank.device_model or rank.device_name
    return kind if kind is None else kind.partition(":")[0]
