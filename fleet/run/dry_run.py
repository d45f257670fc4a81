"""A dry run: what a run would look like, found without training anything."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from fleet.coordination.ledger import Round
from fleet.machine.cluster_map import ClusterMap, pretended
from fleet.machine.devices import local_trainers
from fleet.profiling.sizing import Size, assumed_rate, memory_problem, readable, size_of
from fleet.profiling.store import Profile
from fleet.run.lanes import ring_plan
from fleet.run.ranks.runtime import Runtime, data_key, facts_of, open_datasets
from fleet.run_directory.directory import RunDirectory
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.policies import policy
from fleet.simulator import Prediction, SimulatedJob, predict
from fleet.spec import EnsembleSpec, SpecError, check, importable
from preprocess import shared_memory_available


@dataclass(frozen=True)
class JobPlan:
    """One job's needs and rates.

    Attributes:
        memory: bytes on a device that runs all its virtual workers.
        rates: r(1) .. r(limit), samples/s.
        source: "profile", "table" or "assumed".
    """

    name: str
    size: Size
    memory: int
    samples: int
    epochs: int
    rates: tuple[float, ...]
    source: str


@dataclass(frozen=True)
class DryRun:
    """What a run of `spec` on `cluster` would be."""

    spec: EnsembleSpec
    cluster: ClusterMap
    jobs: tuple[JobPlan, ...]
    prediction: Prediction
    shared_memory: Mapping[int, int]  # node -> bytes
    problems: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "name": self.spec.name,
            "policy": self.spec.policy.name,
            "cluster": self.cluster.record(),
            "jobs": {job.name: _job_json(job) for job in self.jobs},
            "flotillas": [_round_json(round_) for round_ in self.prediction.rounds],
            "predicted_seconds": self.prediction.seconds,
            "rates": sorted({job.source for job in self.jobs}),
            "shared_memory_bytes": {str(node): size for node, size in self.shared_memory.items()},
            "problems": list(self.problems),
        }


def make_plan(spec: EnsembleSpec, shape: tuple[int, ...] | None) -> DryRun:
    """Check the spec, size its jobs, predict its run on `shape` (devices of each node; None: this machine's).

    Raises:
        SpecError, SourceError, TransformError, ClusterError: what a run would refuse.
    """
    with importable([spec.folder, Path.cwd()]):
        runtime = Runtime(spec, facts_of(open_datasets(spec)))
        lengths = {key: (facts.samples, facts.held_out or None) for key, facts in runtime.facts.items()}
        problems = check(spec, lengths)
        if problems:
            raise SpecError(problems)
        trainers = spec.resources.trainers or local_trainers(spec.resources.device)
        shape = shape or (trainers,)
        cluster = pretended(shape, spec.resources.preprocessors, _device(spec), socket.gethostname())
        sizes = {job.name: size_of(runtime.task(job.name), runtime.data_of(job.name).layout) for job in spec.jobs}
    rates = _rates(runtime, sizes, _device(spec))
    prediction = _predict(runtime, cluster, {job: curve for job, (curve, _) in rates.items()})
    ring = ring_plan(runtime, len(cluster.trainers), len(cluster.preprocessors))
    shared = {node: ring.node_bytes(len(cluster.ranks_of(node))) for node in cluster.nodes}
    jobs = tuple(_job_plan(runtime, job.name, sizes[job.name], *rates[job.name]) for job in spec.jobs)
    return DryRun(spec, cluster, jobs, prediction, shared, _shortages(runtime, sizes, shape, shared))


def _device(spec: EnsembleSpec) -> str:
    if spec.resources.device != "auto":
        return spec.resources.device
    import torch

    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return "cpu" if kind is None else kind.type


def _rates(runtime: Runtime, sizes: Mapping[str, Size], device: str) -> dict[str, tuple[RateCurve, str]]:
    """Each job's curve, and where it comes from."""
    spec = runtime.spec
    files = [spec.file(spec.profile.file)] if spec.profile.file else []
    own = RunDirectory(Path("runs") / spec.name).profile
    profiles = [Profile.read(path) for path in [*files, *([own] if own.exists() else [])]]
    table = spec.rehearse.rates if spec.rehearse and isinstance(spec.rehearse.rates, Mapping) else {}
    found = {}
    for job in spec.jobs:
        measured = next(
            (m for p in profiles if (m := p.measured(runtime.fingerprint(job.name, device)) or p.named(job.name))), {}
        )
        source = "profile" if measured else "table"
        measured = measured or dict(table.get(job.name, {}))
        if not measured:
            measured, source = {1: assumed_rate(sizes[job.name], device)}, "assumed"
        found[job.name] = (
            RateCurve(measured, per_node=max(1, local_trainers(device)), workers=job.virtual_workers),
            source,
        )
    return found


def _predict(runtime: Runtime, cluster: ClusterMap, curves: Mapping[str, RateCurve]) -> Prediction:
    spec = runtime.spec
    jobs = {
        job.name: SimulatedJob(f"{data_key(job)}/{job.seed}", runtime.data_of(job.name).samples, job.stop.epochs)
        for job in spec.jobs
    }
    limits = {job.name: job.virtual_workers for job in spec.jobs}
    chosen = policy(spec.policy.name, **spec.policy.parameters)
    return predict(chosen, cluster.cluster, jobs, curves, limits, spec.seed)


def _shortages(
    runtime: Runtime, sizes: Mapping[str, Size], shape: tuple[int, ...], shared: Mapping[int, int]
) -> tuple[str, ...]:
    """What of this machine would not do; another machine may."""
    spec, texts = runtime.spec, []
    limit = spec.resources.memory_gib
    whole = psutil.virtual_memory().total if limit is None else int(limit * 2**30)
    if _device(spec) == "cpu":
        found = memory_problem(sizes, {job.name: job.virtual_workers for job in spec.jobs}, max(shape), whole, whole)
        texts += [found.text] if found is not None else []
    free, place = shared_memory_available()
    texts += [
        f"node {node} needs {readable(size)} of shared memory, {place} here has {readable(free)}"
        for node, size in shared.items()
        if size > free
    ]
    return tuple(texts)


def _job_plan(runtime: Runtime, name: str, size: Size, curve: RateCurve, source: str) -> JobPlan:
    job = runtime.job(name)
    rates = tuple(float(curve(m)) for m in range(1, job.virtual_workers + 1))
    memory = size.device_bytes(job.virtual_workers)
    return JobPlan(name, size, memory, runtime.data_of(name).samples, job.stop.epochs, rates, source)


def _job_json(job: JobPlan) -> dict[str, Any]:
    return {
        "parameters": job.size.parameters,
        "memory_bytes": job.memory,
        "operations_per_sample": job.size.operations,
        "samples": job.samples,
        "max_epochs": job.epochs,
        "rates": list(job.rates),
        "rates_from": job.source,
    }


def _round_json(round_: Round) -> dict[str, Any]:
    return {
        "allocation": {job: list(devices) for job, devices in round_.allocation.items()},
        "start": round_.start,
        "end": round_.end,
    }
