"""A run in the simulator: who would train where and when, by the rates that are known before it begins."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from fleet.journal import events
from fleet.journal.directory import RunDirectory
from fleet.journal.events import Preprocessors
from fleet.journal.journal import read_journal
from fleet.journal.whole_files import RateProfile
from fleet.machine.cluster_map import ClusterMap, pretended
from fleet.machine.devices import model_of
from fleet.profiling.sizing import Size, guessed_rate
from fleet.scheduling.easyscale.kind_curves import KindCurves, strongest
from fleet.scheduling.model.batch_scaling import BatchRange, BatchScaling
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.data_path import DataPath, Feed
from fleet.scheduling.model.policy import BadPlan
from fleet.scheduling.model.rates import RateCurve
from fleet.session.input_checks import BatchTrials, check_against_data, check_minimum, least_sizes
from fleet.session.lanes import RingPlan, ring_of
from fleet.session.plannable_devices import check_lending, devices_to_plan, lending_of, mixes_kinds, prices_of
from fleet.simulator.machines.machine import Costs
from fleet.simulator.machines.run_machine import KnownJob, RunMachine, SpecRates, spec_trace
from fleet.simulator.outcome import PlannedRound, RoundObserver, SimulationOutcome
from fleet.simulator.simulation import Simulation, SimulationConfig
from fleet.spec import EnsembleSpec, Job, importable
from fleet.spec.job import data_key
from fleet.spec.policies import policy
from fleet.spec.sections import profile_files
from fleet.spec.semantics import check_places
from fleet.workers.agreement import BadInput
from fleet.workers.datasets import facts_of, open_datasets
from fleet.workers.runtime import Runtime
from preprocess.files.modules import at_home


@dataclass(frozen=True)
class PredictedRun:
    """What the simulator tells; dropped: job -> why the policy would never run it."""

    outcome: SimulationOutcome
    rounds: tuple[PlannedRound, ...]
    dropped: Mapping[str, str]

    @property
    def seconds(self) -> float:
        """From the begin until the last job is done; infinite if one never is."""
        ends = self.outcome.end.tolist()
        return math.inf if self.dropped or any(map(math.isnan, ends)) else max(ends)


@dataclass(frozen=True)
class Prediction:
    """Predicts runs of a spec; each getting of devices takes `policy.restart` seconds.

    Attributes:
        start: when the run begins, seconds since 1970: deadlines may be times of day.
    """

    spec: EnsembleSpec
    cluster: ClusterMap
    config: SimulationConfig
    start: float

    def of(self, expected: Mapping[str, ExpectedJob]) -> PredictedRun:
        """The run of these jobs, by name."""
        trace = spec_trace({name: one.known for name, one in expected.items()}, self.start)
        trace = trace.with_feeds({name: one.fed for name, one in expected.items() if one.fed is not None})
        jobs = [one.known.job for one in expected.values()]
        rates = SpecRates(
            trace.curves,
            {name: one.scaling for name, one in expected.items() if one.scaling is not None},
            [job.name for job in jobs if job.guaranteed],
            {name: one.by_kind for name, one in expected.items() if one.by_kind is not None},
            [job.name for job in jobs if job.batch is not None and job.batch.change == "epochs"],
            {name: one.executor_rates for name, one in expected.items() if one.executor_rates},
        )
        asked, watch = self.spec.policy, RoundObserver()
        machine = RunMachine(devices_to_plan(self.cluster), rates, Costs(asked.restart, asked.restart))
        chosen = policy(asked.name, **asked.parameters)
        try:
            outcome = Simulation(trace, machine, chosen, config=self.config, watch=watch).run()
        except BadPlan as error:
            raise BadPlan(f"policy {asked.name} gave a bad plan: {error}") from error
        ends = dict(zip(outcome.names, outcome.end.tolist()))
        return PredictedRun(outcome, watch.until(ends), watch.dropped)


@dataclass(frozen=True)
class PredictionInput:
    """All that the prediction of a run needs, and what was found on the way.

    Attributes:
        runtime: the spec with the facts of its data.
        shape: trainers of each node.
        device: the kind of the devices, such as "cpu".
    """

    runtime: Runtime
    prediction: Prediction
    expected: Mapping[str, ExpectedJob]
    sizes: Mapping[str, Size]
    ring: RingPlan
    shape: tuple[int, ...]
    device: str


def prepare(spec: EnsembleSpec, shape: tuple[int, ...], start: float | None = None) -> PredictionInput:
    """Check the spec against its data, size its jobs, and find the rates that are known.

    Args:
        shape: trainers of each node.
        start: when the run would begin, seconds since 1970; None: now.

    Raises:
        SpecError, SourceError, TransformError, ClusterError: what a run would refuse.
    """
    asked, device = spec.resources, asked_device(spec)
    check_places(spec)
    with at_home(spec.folder):
        datasets = open_datasets(spec)
        runtime = Runtime(spec, facts_of(datasets))
        check_against_data(runtime, BatchTrials(datasets))
        members = 1 if device == "cpu" else asked.members_per_device
        cluster = pretended(shape, asked.preprocessors, device, socket.gethostname(), members, asked.kinds)
        check_minimum(runtime, cluster)
        check_lending(runtime, cluster)
        sizes = least_sizes(runtime)
    with importable([spec.folder, Path.cwd()]):
        expected = expected_jobs(runtime, sizes, device, cluster)
    ring = ring_of(runtime, cluster)
    lending = lending_of(runtime, cluster)
    config = SimulationConfig(spec.seed, ring.samples, spec.policy.margin, prices_of(spec, cluster), lending)
    prediction = Prediction(spec, cluster, config, time.time() if start is None else start)
    return PredictionInput(runtime, prediction, expected, sizes, ring, shape, device)


def asked_device(spec: EnsembleSpec) -> str:
    """The kind of this machine's devices that the spec asks for."""
    if spec.resources.device != "auto":
        return spec.resources.device
    import torch

    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return "cpu" if kind is None else kind.type


@dataclass(frozen=True)
class ExpectedJob:
    """How fast a job is expected to train, and where that comes from.

    Attributes:
        scaling: None where the policy chooses no batch for it.
        by_kind: None where all devices are alike.
        source: "profile", "table" or "assumed".
        executor_rates: samples/s of 1, 2, ... of its trainers on one accelerator, where the policy chooses how many.
        fed: how fast all preprocessors make what it reads; None: nobody knows.
    """

    known: KnownJob
    scaling: BatchScaling | None
    by_kind: KindCurves | None
    source: str
    executor_rates: tuple[float, ...] = ()
    fed: Feed | None = None


def expected_jobs(
    runtime: Runtime, sizes: Mapping[str, Size], device: str, cluster: ClusterMap
) -> dict[str, ExpectedJob]:
    """What a run would start with: each job's rate curve, and its rates by batch where the policy chooses one."""
    spec, directory, model = runtime.spec, RunDirectory(Path("runs") / runtime.spec.name), model_of(device)
    known = {
        kind: KnownRates(runtime, directory, rated if kind else model, kind="" if kind else device, named=kind)
        for kind, rated in cluster.rated.items()
    }
    chosen = policy(spec.policy.name, **spec.policy.parameters)
    batches, most = chosen.chooses_batches, min(chosen.most_executors, cluster.members)
    together = KnownRates(runtime, directory, executors_of(model), named=EXECUTORS)
    devices = devices_to_plan(cluster)
    path = known_data_path(spec, directory, sorted(runtime.facts), len(cluster.preprocessors))
    lending = lending_of(runtime, cluster)
    single = ((job.name, next(iter(known.values())).of(runtime, job.name).get(1)) for job in spec.jobs)
    others = [(sizes[name], rate) for name, rate in single if rate is not None]
    found = {}
    for job in spec.jobs:
        guess = guessed_rate(sizes[job.name], others, device)
        curves, source = _curves(runtime, known, job, guess, devices)
        passing = runtime.data_of(job.name).samples / runtime.trained_in_epoch(job.name)
        fed = None if path is None else path.feed_of(data_key(job), passing)
        if fed is not None:
            ceiling = fed.own * lending.times(lending.most)
            curves = {kind: curve.capped(ceiling, job.virtual_workers) for kind, curve in curves.items()}
        home = strongest(curves, devices, job.virtual_workers)
        by_kind = KindCurves(curves, home, job.virtual_workers, job.batch_size) if home else None
        mixed, _ = mixes_kinds(runtime, cluster, job.name)
        samples = runtime.trained_in_epoch(job.name)
        scaling = _scaling(runtime, known[home], job, curves[home]) if batches and job.batches is not None else None
        asked = KnownJob(job, samples, data_key(job), curves[home], mixed)
        rates = together.of(runtime, job.name) if most > 1 and not home else {}
        found[job.name] = ExpectedJob(asked, scaling, by_kind, source, _in_a_row(rates, most), fed)
    return found


def _in_a_row(rates: Mapping[int, float], most: int) -> tuple[float, ...]:
    """Those of 1, 2, ... executors, as far as none is missing."""
    return tuple(rates[count] for count in takewhile(rates.__contains__, range(1, most + 1)))


def _curves(
    runtime: Runtime, known: Mapping[str, KnownRates], job: Job, assumed: float, cluster: Cluster
) -> tuple[dict[str, RateCurve], str]:
    """A job's rate curve on each kind of device, and where they come from: the least sure of all."""
    spec, curves, sources = runtime.spec, dict[str, RateCurve](), set[str]()
    table = spec.rehearse.rates if spec.rehearse and isinstance(spec.rehearse.rates, Mapping) else {}
    speeds = spec.rehearse.speeds if spec.rehearse else {}
    for kind, each in known.items():
        measured, source = each.of(runtime, job.name), "profile"
        if not measured:
            speed = speeds.get(kind, 1.0)
            measured, source = {count: rate * speed for count, rate in table.get(job.name, {}).items()}, "table"
        if not measured:
            measured, source = {1: assumed}, "assumed"
        curves[kind] = RateCurve(measured, cluster.per_node(kind), workers=job.virtual_workers)
        sources.add(source)
    return curves, next(source for source in ("assumed", "table", "profile") if source in sources)


def _scaling(runtime: Runtime, known: KnownRates, job: Job, curve: RateCurve) -> BatchScaling:
    assert job.batches is not None
    least, most = job.batches
    range_ = BatchRange(least, min(most, runtime.samples_of(job.name)), job.virtual_workers)
    rates = {size: known.alone(runtime, job.name, size) for size in range_.sizes if size != job.batch_size}
    alone = {size * job.virtual_workers: rate for size, rate in rates.items() if rate is not None}
    listed = known.by_batch(job.name) or known.rehearsed_by_batch(job.name)
    others = {batch: rate for batch, rate in listed.items() if batch != job.global_batch}
    return BatchScaling(curve, job.global_batch, range_, others | alone)


def foretold_data_path(spec: EnsembleSpec, data: Iterable[str], preprocessors: int) -> DataPath | None:
    """What `rehearse.preprocessors` says of so many; None: it says nothing.

    Args:
        data: the keys of the data sets.
    """
    if spec.rehearse is None or not spec.rehearse.preprocessors:
        return None
    return DataPath(spec.rehearse.preprocessors).limited_to(preprocessors, data)


def known_data_path(
    spec: EnsembleSpec, directory: RunDirectory, data: Iterable[str], preprocessors: int
) -> DataPath | None:
    """What `rehearse.preprocessors` says, else what the run's last session measured; None: nobody knows."""
    foretold = foretold_data_path(spec, data, preprocessors)
    if foretold is not None:
        return foretold
    measured = None
    for event in read_journal(directory.journal):
        if isinstance(event, Preprocessors):
            measured = DataPath.of(event.counts, event.of_data, event.of_new)
    return None if measured is None else measured.on(preprocessors)


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
