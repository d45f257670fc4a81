"""A dry run: what a run of a spec would look like, found without training anything."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fleet.machine.cluster_map import ClusterMap
from fleet.machine.devices import local_trainers, usable_memory
from fleet.profiling.sizing import Size, refused_on
from fleet.report.wording import plural, readable_bytes
from fleet.scheduling.model.data_path import Feed
from fleet.scheduling.model.jobs import ServiceWindow
from fleet.session.batch_bounds import with_estimated_batches
from fleet.session.chosen_workers import (
    MoreWorkers,
    more_workers,
    with_chosen_workers,
    with_known_batches,
    with_known_rule,
)
from fleet.session.input_checks import Room, lengths_of, memory_problem
from fleet.session.plannable_devices import described_orders, order_problems, stays_on_one
from fleet.session.prediction import ExpectedJob, PredictionInput, asked_device, prepare
from fleet.session.search.first_trials import described_search, with_first_trials
from fleet.simulator.outcome import PlannedRound, SimulationOutcome
from fleet.spec import EnsembleSpec, Job, SearchSpec
from fleet.spec.semantics import schedule_notes
from fleet.spec.subsets import part_in_words
from preprocess.ring.shared_memory import shared_memory_available


@dataclass(frozen=True)
class PlannedJob:
    """One job's needs, rates and prediction.

    Attributes:
        memory: bytes on a device that runs all its virtual workers; host_memory: of the host.
        rates: r(1) .. r(virtual workers), samples/s.
        source: "profile", "table" or "assumed".
        begin, end: seconds since the run began when it first trains and is done; NaN: never.
        deadline: in the same seconds; infinite where it has none.
        fed: how fast preprocessors make what it reads; None: nobody knows.
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
    fed: Feed | None

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
            "part": part_in_words(self.spec),
            "virtual_workers": self.spec.virtual_workers,
            "minimum_devices": self.spec.minimum_devices,
            "batch_size": self.spec.batch_size,
            "max_epochs": self.spec.stop.epochs,
            "rates": list(self.rates),
            "rates_from": self.source,
            "arrival": self.spec.arrival,
            "deadline": _told(self.deadline),
            "begin": _told(self.begin),
            "end": _told(self.end),
            "fed": None if self.fed is None else {"first": self.fed.first, "later": self.fed.later},
        }


@dataclass(frozen=True)
class DryRun:
    """What a run would do, and need.

    Attributes:
        rounds: by start.
        broken: windows in which jobs would have less than their service levels promise.
        dropped: job -> why the policy would never run it.
        shared_memory: node -> bytes.
        chosen_workers: job -> virtual workers, of the jobs that leave them to fleet.
        chosen_batches: job -> samples of a virtual worker, of those with `batch_size: largest`; what a run tries on
            accelerators is estimated here.
        more_workers: what more virtual workers would bring; None: nothing worth telling.
        problems: this machine's problems, which another one may not have.
        orders: a sentence on each data set whose order goes by blocks.
        search: sentences on the search, whose first trials are planned with the jobs.
        schedules: sentences on learning-rate schedules that are not as long as their runs.
        disk: bytes that all checkpoints take at most, and a sentence.
    """

    spec: EnsembleSpec
    cluster: ClusterMap
    jobs: tuple[PlannedJob, ...]
    rounds: tuple[PlannedRound, ...]
    dropped: Mapping[str, str]
    shared_memory: Mapping[int, int]
    chosen_workers: Mapping[str, int]
    chosen_batches: Mapping[str, int]
    more_workers: MoreWorkers | None
    problems: tuple[str, ...]
    orders: tuple[str, ...] = ()
    search: tuple[str, ...] = ()
    broken: tuple[ServiceWindow, ...] = ()
    schedules: tuple[str, ...] = ()
    disk: tuple[int, str] = (0, "")

    @property
    def seconds(self) -> float:
        """From the run's begin until the last job is done."""
        return max((job.end for job in self.jobs if not math.isnan(job.end)), default=0.0)

    @property
    def late(self) -> tuple[PlannedJob, ...]:
        """The jobs that miss their deadlines."""
        return tuple(job for job in self.jobs if job.late)

    @property
    def made(self) -> tuple[str, ...]:
        """A sentence on each data set that jobs read: how fast preprocessors make it, where that is known."""
        most = max((one.lent or 0 for one in self.rounds), default=0)
        known = {job.fed.data: job.fed for job in self.jobs if job.fed is not None}
        return tuple(_made(fed, most) for fed in known.values())

    @property
    def bounded(self) -> PlannedRound | None:
        """The first round with a bound that was planned with all jobs there, or the last one with a bound at all."""
        last = max(job.spec.arrival for job in self.jobs)
        known = [one for one in self.rounds if one.bound is not None or one.worth_bound is not None]
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
            "broken_service": [asdict(window) for window in self.broken],
            "rates": sorted({job.source for job in self.jobs}),
            "shared_memory_bytes": {str(node): size for node, size in self.shared_memory.items()},
            "more_workers": None if self.more_workers is None else self.more_workers.to_json(),
            "problems": list(self.problems),
            "orders": list(self.orders),
            "search": list(self.search),
            "schedules": list(self.schedules),
            "checkpoint_bytes": self.disk[0],
        }


@contextmanager
def _few_collections() -> Iterator[None]:
    """Look for garbage seldom: networks that are sized make many objects, and hardly any in circles.

    For 100 deep networks that saves an eighth of the CPU time.
    """
    before = gc.get_threshold()
    gc.set_threshold(200_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@_few_collections()
def make_plan(spec: EnsembleSpec, shape: tuple[int, ...] | None, start: float | None = None) -> DryRun:
    """Check the spec, size its jobs, predict its run.

    Args:
        spec: the ensemble's.
        shape: devices of each node; None: this machine's.
        start: when the run would begin, seconds since 1970; None: now.

    Raises:
        SpecError, SourceError, TransformError, ClusterError: what a run would refuse.
    """
    own = {job.name: job for job in spec.jobs}
    searched, spec = tuple(described_search(spec)), with_first_trials(spec)
    asked, members = spec.resources, 1 if asked_device(spec) == "cpu" else spec.resources.members_per_device
    here = (asked.trainers or local_trainers(asked.device, members),)
    shape = tuple(devices * members for devices in shape) if shape else here
    open_, wished = ([job.name for job in spec.jobs if asks(job)] for asks in (_leaves_workers, _leaves_batch))
    out = Path("runs") / spec.name
    spec = with_chosen_workers(with_known_batches(with_known_rule(spec, out), out), out, shape)
    ready = with_estimated_batches(prepare(spec, shape, start), start)
    spec = ready.prediction.spec
    expected, sizes, ring, cluster = ready.expected, ready.sizes, ready.ring, ready.prediction.cluster
    told = ready.prediction.of(expected)
    shared = {node: ring.node_bytes(len(cluster.ranks_of(node))) for node in cluster.nodes}
    jobs = tuple(_planned(expected[job.name], sizes[job.name], ready.device, told.outcome) for job in spec.jobs)
    chosen = {name: spec.job(name).virtual_workers for name in open_}
    sizes_of = {name: spec.job(name).batch_size for name in wished}
    wider = more_workers(ready.prediction, expected, told)
    shortages, orders = _shortages(ready, shared), tuple(described_orders(ready.runtime))
    return DryRun(
        spec,
        cluster,
        jobs,
        told.rounds,
        told.dropped,
        shared,
        chosen,
        sizes_of,
        wider,
        shortages,
        orders,
        searched,
        told.outcome.broken,
        schedule_notes(spec.with_jobs(tuple(job for job in spec.jobs if job.name in own)), lengths_of(ready.runtime)),
        disk_need(spec, own, sizes),
    )


def _leaves_workers(job: Job) -> bool:
    return job.auto_workers


def _leaves_batch(job: Job) -> bool:
    return job.largest_batch is not None


def _planned(expected: ExpectedJob, size: Size, device: str, outcome: SimulationOutcome) -> PlannedJob:
    job, row = expected.known.job, outcome.names.index(expected.known.job.name)
    rates = tuple(float(expected.known.curve(m)) for m in range(1, job.virtual_workers + 1))
    workers = job.virtual_workers
    host = size.cpu_bytes(workers) if device == "cpu" else size.host_bytes(workers)
    memory = host if device == "cpu" else size.device_bytes(workers)
    return PlannedJob(
        job,
        size,
        memory,
        host,
        expected.known.samples,
        rates,
        expected.source,
        float(outcome.begin[row]),
        float(outcome.end[row]),
        float(outcome.deadline[row]),
        expected.fed,
    )


def _shortages(ready: PredictionInput, shared: Mapping[int, int]) -> tuple[str, ...]:
    """What of this machine would not do; another machine may."""
    spec, sizes, texts = ready.prediction.spec, ready.sizes, []
    limit = spec.resources.memory_gib
    host = usable_memory() if limit is None else int(limit * 2**30)
    room = Room(max(ready.shape), host, None if ready.device == "cpu" else math.inf)
    found = memory_problem(sizes, {job.name: job.virtual_workers for job in spec.jobs}, room)
    texts += [found.text] if found is not None else []
    texts += [text for job, size in sizes.items() for text in refused_on(ready.device, job, size)]
    texts += [text for job in sizes for text in stays_on_one(ready.runtime, ready.prediction.cluster, job)]
    free, place = shared_memory_available()
    texts += [
        f"node {node} needs {readable_bytes(size)} of shared memory, {place} here has {readable_bytes(free)}"
        for node, size in shared.items()
        if size > free
    ]
    texts += order_problems(ready.runtime, len(ready.prediction.cluster.preprocessors))
    return tuple(texts)


def _round_json(one: PlannedRound) -> dict[str, Any]:
    allocation = {job: list(devices) for job, devices in one.allocation.items()}
    lent = {} if one.lent is None else {"lent": one.lent}
    return {"allocation": allocation, "start": one.start, "end": one.end, **lent, **_bound_json(one)}


def _bound_json(one: PlannedRound) -> dict[str, Any]:
    """What the plan's policy computed of its bounds."""
    ends = {"bound_seconds": one.bound, "end_seconds": one.expected, "gap": one.gap}
    worth = {"worth": one.worth, "worth_bound": one.worth_bound}
    return {**({} if one.bound is None else ends), **({} if one.worth_bound is None else worth)}


def _made(feed: Feed, lent: int) -> str:
    first = f", {feed.first:,.0f} until an epoch of it was read" if feed.first < feed.later else ""
    that = f"that, and with up to {plural(lent, 'trainer')} that help them" if lent else "that"
    return f"data {feed.data}: preprocessors make {feed.later:,.0f} samples/s{first}; the prediction counts with {that}"


def _told(value: float) -> float | None:
    return value if math.isfinite(value) else None


def checkpoint_bytes(size: Size, workers: int) -> int:
    """One checkpoint: parameters, the optimizer's state, and each virtual worker's buffers."""
    return size.parameter_bytes + size.optimizer_bytes + workers * size.buffer_bytes


def disk_need(spec: EnsembleSpec, own: Mapping[str, Job], sizes: Mapping[str, Size]) -> tuple[int, str]:
    """Bytes that all checkpoints take at most at a time, and a sentence.

    Args:
        spec: with the first trials of its search as further jobs.
        own: the jobs that the spec itself names, by name.
        sizes: of all its jobs.
    """
    each = {job.name: checkpoint_bytes(sizes[job.name], job.virtual_workers) for job in spec.jobs}
    keep = max(1, spec.checkpoints.keep) + (spec.checkpoints.best is not None)
    total = sum(each[name] for name in own) * keep
    largest = max(each.values(), default=0)
    told = f"{keep} of each network"
    if spec.search is not None:
        largest = max((each[name] for name in each if name not in own), default=largest)
        trials = trials_kept(spec.search, spec.checkpoints.keep)
        if trials is None:
            told += ", and nobody says how many trials there will be: counted are those under way"
        total += (trials or spec.search.width) * keep * largest
        told += f" and of {plural(trials or spec.search.width, 'trial')}"
    total += largest  # the one before stays until the next is complete
    return total, f"checkpoints take up to {readable_bytes(total)} of disk: {told}, of up to {readable_bytes(largest)}"


def trials_kept(search: SearchSpec, keep: int) -> int | None:
    """Of how many trials checkpoints are kept at a time, at most; None: nobody says how many there are."""
    most = search.most_trials
    if most is None or keep or search.stopping.name != "halving" or search.stopping.synchronous:
        return most
    going_on = sum(most // search.stopping.eta ** (level + 1) for level in range(len(search.rungs) - 1))
    return min(most, search.width + going_on + 1)
