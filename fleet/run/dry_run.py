"""A dry run: what a run of a spec would look like, found without training anything."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.machine.cluster_map import ClusterMap, pretended
from fleet.machine.devices import local_trainers, model_of
from fleet.machine.memory import node_memory
from fleet.profiling.sizing import Room, Size, assumed_rate, memory_problem, readable, refused_on, size_of
from fleet.run.input_checks import check_against_data
from fleet.run.known_rates import KnownRates
from fleet.run.lanes import RingPlan, ring_plan
from fleet.run.mixed_kinds import mixes_kinds
from fleet.run.ranks.runtime import Runtime, data_key, facts_of, open_datasets
from fleet.run_directory.directory import RunDirectory
from fleet.scheduling.easyscale.kind_curves import KindCurves, strongest
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.policies import chooses_batches, policy
from fleet.scheduling.variable_batch.batch_scaling import BatchRange, BatchScaling
from fleet.simulator.machines.arrivals import Costs
from fleet.simulator.machines.run_machine import RunMachine, SpecRates
from fleet.simulator.outcome import Outcome
from fleet.simulator.rounds import PlannedRound, Rounds
from fleet.simulator.simulation import Premises, Simulation
from fleet.simulator.traces.spec_trace import KnownJob, spec_trace
from fleet.spec import EnsembleSpec, Job, importable
from preprocess import shared_memory_available


@dataclass(frozen=True)
class PlannedJob:
    """One job's needs, rates and prediction.

    Attributes:
        memory: bytes on a device that runs all its virtual workers; host_memory: of the host.
        rates: r(1) .. r(virtual workers), samples/s.
        source: "profile", "table" or "assumed".
        begin, end: seconds since the run began when it first trains and is done; NaN: never.
        deadline: in the same seconds; infinite where it has none.
    """

    spec: Job
    size: Size
    memory: int
    host_memory: int
    samples: int
    rates: tuple[float, ...]
    source: str
    begin: float
    end: float
    deadline: float

    @property
    def name(self) -> str:
        """The job's."""
        return self.spec.name

    @property
    def late(self) -> bool:
        """Whether it is done, but after its deadline."""
        return self.end > self.deadline

    def to_json(self) -> dict[str, Any]:
        """Plain values; null where there is nothing to tell."""
        return {
            "parameters": self.size.parameters,
            "memory_bytes": self.memory,
            "host_memory_bytes": self.host_memory,
            "operations_per_sample": self.size.operations,
            "samples": self.samples,
            "max_epochs": self.spec.stop.epochs,
            "rates": list(self.rates),
            "rates_from": self.source,
            "arrival": self.spec.arrival,
            "deadline": _told(self.deadline),
            "begin": _told(self.begin),
            "end": _told(self.end),
        }


@dataclass(frozen=True)
class DryRun:
    """What a run would do, and need.

    Attributes:
        rounds: by start.
        dropped: job -> why the policy would never run it.
        shared_memory: node -> bytes.
        problems: this machine's problems, which another one may not have.
    """

    spec: EnsembleSpec
    cluster: ClusterMap
    jobs: tuple[PlannedJob, ...]
    rounds: tuple[PlannedRound, ...]
    dropped: Mapping[str, str]
    shared_memory: Mapping[int, int]
    problems: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """From the run's begin until the last job is done."""
        return max((job.end for job in self.jobs if not math.isnan(job.end)), default=0.0)

    @property
    def late(self) -> tuple[PlannedJob, ...]:
        """The jobs that miss their deadlines."""
        return tuple(job for job in self.jobs if job.late)

    @property
    def bounded(self) -> PlannedRound | None:
        """The first round with a bound that was planned with all jobs there, or the last one with a bound at all."""
        last = max(job.spec.arrival for job in self.jobs)
        known = [one for one in self.rounds if one.bound is not None]
        return next((one for one in known if one.start >= last), known[-1] if known else None)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        bounded = self.bounded
        return {
            "name": self.spec.name,
            "policy": self.spec.policy.name,
            "cluster": self.cluster.record(),
            "jobs": {job.name: job.to_json() for job in self.jobs},
            "flotillas": [_round_json(one) for one in self.rounds],
            "predicted_seconds": self.seconds,
            **({} if bounded is None else _bound_json(bounded)),
            "dropped": dict(self.dropped),
            "missed_deadlines": [job.name for job in self.late],
            "rates": sorted({job.source for job in self.jobs}),
            "shared_memory_bytes": {str(node): size for node, size in self.shared_memory.items()},
            "problems": list(self.problems),
        }


def make_plan(spec: EnsembleSpec, shape: tuple[int, ...] | None, start: float | None = None) -> DryRun:
    """Check the spec, size its jobs, predict its run.

    Args:
        spec: the ensemble's.
        shape: devices of each node; None: this machine's.
        start: when the run would begin, seconds since 1970; None: now.

    Raises:
        SpecError, SourceError, TransformError, ClusterError: what a run would refuse.
    """
    device = _device(spec)
    with importable([spec.folder, Path.cwd()]):
        runtime = Runtime(spec, facts_of(open_datasets(spec)))
        check_against_data(runtime)
        asked, members = spec.resources, 1 if device == "cpu" else spec.resources.members_per_device
        here = (asked.trainers or local_trainers(asked.device, members),)
        shape = tuple(devices * members for devices in shape) if shape else here
        cluster = pretended(shape, asked.preprocessors, device, socket.gethostname(), members, asked.kinds)
        sizes = {job.name: size_of(runtime.task(job.name), runtime.data_of(job.name).layout) for job in spec.jobs}
        expected = _expected(runtime, sizes, device, cluster)
    ring = ring_plan(runtime, len(cluster.trainers), len(cluster.preprocessors))
    outcome, rounds, dropped = _simulated(spec, cluster, expected, ring, time.time() if start is None else start)
    shared = {node: ring.node_bytes(len(cluster.ranks_of(node))) for node in cluster.nodes}
    jobs = tuple(_planned(expected[job.name], sizes[job.name], device, outcome) for job in spec.jobs)
    return DryRun(spec, cluster, jobs, rounds, dropped, shared, _shortages(runtime, sizes, shape, shared))


@dataclass(frozen=True)
class _Expected:
    """How fast a job is expected to train, and where that comes from; by_kind: None where all devices are alike."""

    known: KnownJob
    scaling: BatchScaling | None
    by_kind: KindCurves | None
    source: str


def _device(spec: EnsembleSpec) -> str:
    if spec.resources.device != "auto":
        return spec.resources.device
    import torch

    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return "cpu" if kind is None else kind.type


def _expected(runtime: Runtime, sizes: Mapping[str, Size], device: str, cluster: ClusterMap) -> dict[str, _Expected]:
    """What a run would start with: each job's rate curve, and its rates by batch where the policy chooses one."""
    spec, directory, model = runtime.spec, RunDirectory(Path("runs") / runtime.spec.name), model_of(device)
    known = {
        kind: KnownRates(runtime, directory, rated if kind else model, kind="" if kind else device, named=kind)
        for kind, rated in cluster.rated.items()
    }
    batches = chooses_batches(policy(spec.policy.name, **spec.policy.parameters))
    found = {}
    for job in spec.jobs:
        curves, source = _curves(runtime, known, job, assumed_rate(sizes[job.name], device), cluster.cluster)
        home = strongest(curves, cluster.cluster, job.virtual_workers)
        by_kind = KindCurves(curves, home, job.virtual_workers, job.batch_size) if home else None
        mixed, _ = mixes_kinds(runtime, device)
        samples = runtime.data_of(job.name).samples
        scaling = _scaling(runtime, known[home], job, curves[home]) if batches and job.batches is not None else None
        asked = KnownJob(job, samples, data_key(job), curves[home], mixed)
        found[job.name] = _Expected(asked, scaling, by_kind, source)
    return found


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
    range_ = BatchRange(least, min(most, runtime.data_of(job.name).samples), job.virtual_workers)
    rates = {size: known.alone(runtime, job.name, size) for size in range_.sizes if size != job.batch_size}
    alone = {size * job.virtual_workers: rate for size, rate in rates.items() if rate is not None}
    listed = known.by_batch(job.name) or known.rehearsed_by_batch(job.name)
    others = {batch: rate for batch, rate in listed.items() if batch != job.global_batch}
    return BatchScaling(curve, job.global_batch, range_, others | alone)


def _simulated(
    spec: EnsembleSpec, cluster: ClusterMap, expected: Mapping[str, _Expected], ring: RingPlan, start: float
) -> tuple[Outcome, tuple[PlannedRound, ...], Mapping[str, str]]:
    """The run in the simulator: each getting of devices takes `policy.restart` seconds."""
    trace = spec_trace({name: one.known for name, one in expected.items()}, start)
    rates = SpecRates(
        trace.curves,
        {name: one.scaling for name, one in expected.items() if one.scaling is not None},
        [job.name for job in spec.jobs if job.guaranteed],
        {name: one.by_kind for name, one in expected.items() if one.by_kind is not None},
        [job.name for job in spec.jobs if job.batch is not None and job.batch.change == "epochs"],
    )
    restart = spec.policy.restart
    machine = RunMachine(cluster.cluster, rates, Costs(restart, restart))
    chosen, watch = policy(spec.policy.name, **spec.policy.parameters), Rounds()
    premises = Premises(spec.seed, ring.samples, spec.policy.margin)
    outcome = Simulation(trace, machine, chosen, premises=premises, watch=watch).run()
    return outcome, watch.until(dict(zip(outcome.names, outcome.end.tolist()))), watch.dropped


def _planned(expected: _Expected, size: Size, device: str, outcome: Outcome) -> PlannedJob:
    job, row = expected.known.job, outcome.names.index(expected.known.job.name)
    rates = tuple(float(expected.known.curve(m)) for m in range(1, job.virtual_workers + 1))
    workers = job.virtual_workers
    host = size.cpu_bytes(workers) if device == "cpu" else size.host_bytes(workers)
    memory = host if device == "cpu" else size.device_bytes(workers)
    return PlannedJob(
        job, size, memory, host, expected.known.samples, rates, expected.source,
        float(outcome.begin[row]), float(outcome.end[row]), float(outcome.deadline[row]),
    )  # fmt: skip


def _shortages(
    runtime: Runtime, sizes: Mapping[str, Size], shape: Sequence[int], shared: Mapping[int, int]
) -> tuple[str, ...]:
    """What of this machine would not do; another machine may."""
    spec, texts = runtime.spec, []
    limit = spec.resources.memory_gib
    host = node_memory() if limit is None else int(limit * 2**30)
    room = Room(max(shape), host, None if _device(spec) == "cpu" else math.inf)
    found = memory_problem(sizes, {job.name: job.virtual_workers for job in spec.jobs}, room)
    texts += [found.text] if found is not None else []
    texts += [text for job, size in sizes.items() for text in refused_on(_device(spec), job, size)]
    free, place = shared_memory_available()
    texts += [
        f"node {node} needs {readable(size)} of shared memory, {place} here has {readable(free)}"
        for node, size in shared.items()
        if size > free
    ]
    return tuple(texts)


def _round_json(one: PlannedRound) -> dict[str, Any]:
    allocation = {job: list(devices) for job, devices in one.allocation.items()}
    bound = {} if one.bound is None else _bound_json(one)
    return {"allocation": allocation, "start": one.start, "end": one.end, **bound}


def _bound_json(one: PlannedRound) -> dict[str, Any]:
    return {"bound_seconds": one.bound, "end_seconds": one.expected, "gap": one.gap}


def _told(value: float) -> float | None:
    return value if math.isfinite(value) else None
