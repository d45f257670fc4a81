"""How fast the jobs of a spec are expected to train, before any of them has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from fleet.journal.directory import RunDirectory
from fleet.machine.cluster_map import ClusterMap
from fleet.machine.devices import model_of
from fleet.profiling.guesses import guessed_rate
from fleet.profiling.sizing import Size
from fleet.scheduling.easyscale.kind_curves import KindCurves, strongest
from fleet.scheduling.model.batch_scaling import BatchRange, BatchScaling
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.data_path import Feed
from fleet.scheduling.model.rates import RateCurve
from fleet.session.devices_to_plan import devices_to_plan
from fleet.session.foretold_data_path import known_data_path
from fleet.session.known_rates import EXECUTORS, KnownRates, executors_of
from fleet.session.lending_checks import lending_of
from fleet.session.mixed_kinds import mixes_kinds
from fleet.simulator.machines.run_machine import KnownJob
from fleet.spec import Job
from fleet.spec.job import data_key
from fleet.spec.policies import chosen_policy
from fleet.workers.runtime import Runtime


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
    chosen = chosen_policy(spec.policy.name, **spec.policy.parameters)
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
