"""Everything that can be wrong with a run before anything of it is begun."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fleet.machine.cluster_map import ClusterMap
from fleet.profiling.measure import made_up_batch
from fleet.profiling.sizing import Size, SizeByBatch, size_by_batch
from fleet.report.wording import readable_bytes
from fleet.search.of_spec import search_problems
from fleet.session.lanes import RingPlan, ring_of
from fleet.session.plannable_devices import check_lending, devices_to_plan, lending_problems, mixes_kinds, prices_of
from fleet.spec import EnsembleSpec, Job, Problem, ReferenceProblem, SpecError, SpecTask, check
from fleet.spec.job import data_key
from fleet.spec.job_checks import kept_random_state
from fleet.spec.named_parts import JobLoss
from fleet.spec.problem import ABSENT, KeyPath, in_order
from fleet.spec.subsets import part_problems
from fleet.spec.trials import corner_jobs, most_workers
from fleet.workers.agreement import BadInput
from fleet.workers.feed import collated
from fleet.workers.runtime import KnownSizes, Runtime
from preprocess import Dataset, SampleLayout
from preprocess.samples.layout import places_in
from preprocess.samples.order import HELD_OUT, TRAIN
from trainers.device.device_memory import share_of
from trainers.repeatable.process_settings import model_without_memory, no_exit, settings_kept, spare_compiler
from trainers.task.loss import UnfitTask
from trainers.task.metrics import Metric, Misfit
from trainers.task.parts import is_parted
from trainers.task.task import evaluation_batch_of, loss_of, move
from trainers.task.task_options import StepOptions


def check_input(
    runtime: Runtime, cluster: ClusterMap, trials: BatchTrials, known: KnownSizes | None = None
) -> dict[str, Size]:
    """Check the spec against its data and the machine; returns the jobs' sizes.

    Args:
        known: where sizes that are found are kept.

    Raises:
        SpecError, BadInput: with all that is wrong with the spec, or the first thing that the machine cannot carry.
    """
    spec = runtime.spec
    check_against_data(runtime, trials)
    _check_trainers(spec, cluster)
    check_minimum(runtime, cluster)
    check_lending(runtime, cluster)
    prices_of(spec, cluster)
    sizes = least_sizes(runtime, known)
    check_memory(spec, cluster, sizes)
    _check_shared_memory(spec, cluster, ring_of(runtime, cluster))
    return sizes


def check_against_data(runtime: Runtime, trials: BatchTrials) -> None:
    """Check the spec with its data, which are open, and try metrics and losses; SpecError with all that is wrong."""
    problems = (
        *check(runtime.spec, lengths_of(runtime)),
        *search_problems(runtime.spec),
        *_own_data_problems(runtime),
        *lending_problems(runtime),
    )
    problems = problems or tuple(last_batch_problems(runtime)) or tuple(trials.problems(runtime))
    if problems:
        raise SpecError(in_order(problems))


def lengths_of(runtime: Runtime) -> dict[str, tuple[int, int | None]]:
    """Samples of each data set, by data key: to train on, and held out, where there are any."""
    return {key: (facts.samples, facts.held_out or None) for key, facts in runtime.facts.items()}


def _own_data_problems(runtime: Runtime) -> Iterator[Problem]:
    """What is wrong with parts of data sets that tasks bring along, whose lengths the spec alone does not tell."""
    for position, job in enumerate(runtime.spec.jobs):
        if job.data is None:
            yield from part_problems(runtime.spec, position, runtime.data_of(job.name).samples)


def _check_trainers(spec: EnsembleSpec, cluster: ClusterMap) -> None:
    trainers, workers = len(cluster.trainers), most_workers(spec)
    if trainers > workers:
        raise BadInput(
            f"{trainers} trainers are more than the {workers} virtual workers of all jobs together: "
            f"{trainers - workers} could never work; start at most {workers} trainers, "
            "or give jobs more virtual_workers"
        )


def check_minimum(runtime: Runtime, cluster: ClusterMap) -> None:
    """Raise SpecError with all jobs that could never have as many devices as they need or are promised."""
    found = [
        problem
        for position, job in enumerate(runtime.spec.jobs)
        for problem in _shortages(position, job, runtime, cluster)
    ]
    if found:
        raise SpecError(tuple(found))


def _shortages(position: int, job: Job, runtime: Runtime, cluster: ClusterMap) -> Iterator[Problem]:
    origins, more = runtime.spec.origins, "or start the run with more trainers"
    short = minimum_problem(job, runtime, cluster)
    if short is not None:
        rule, most = short
        path = ("jobs", position, "minimum_devices")
        yield origins.problem(path, job.minimum_devices, rule, str(most), f"set it to at most {most}, {more}")
    lacking = service_problem(job, runtime, cluster)
    if job.service_level is not None and lacking is not None:
        path, (rule, most) = ("jobs", position, "service_level"), lacking
        mend = f"set its devices to at most {most}, {more}"
        yield origins.problem(path, job.service_level.model_dump(), rule, str(most), mend)


def minimum_problem(job: Job, runtime: Runtime, cluster: ClusterMap) -> tuple[str, int] | None:
    """Why the job could never have as many devices as it needs, and the most that it can have; None: it can."""
    return _short_of(job.minimum_devices, job, runtime, cluster)


def service_problem(job: Job, runtime: Runtime, cluster: ClusterMap) -> tuple[str, int] | None:
    """The same of the devices that its service level promises it."""
    return None if job.service_level is None else _short_of(job.service_level.devices, job, runtime, cluster)


def _short_of(devices: float, job: Job, runtime: Runtime, cluster: ClusterMap) -> tuple[str, int] | None:
    if devices <= 1:
        return None
    counts = devices_to_plan(cluster).counts()
    mixed, _ = mixes_kinds(runtime, cluster, job.name)
    most = sum(counts.values()) if mixed else max(counts.values())
    if devices <= most:
        return None
    if len(counts) > 1 and not mixed:
        there = ", ".join(f"{count} of kind {kind}" for kind, count in counts.items())
        return f"it trains on devices of one kind, and there are {there}", most
    return f"there are {most} trainers", most


def least_sizes(runtime: Runtime, known: KnownSizes | None = None) -> dict[str, Size]:
    """All jobs' needs, see `least_size`; those that differ in nothing on which these depend are sized once."""
    known = known or KnownSizes()
    return {job.name: least_size(runtime, job, known) for job in runtime.spec.jobs}


def least_size(runtime: Runtime, job: Job, known: KnownSizes | None = None) -> Size:
    """A job's needs; with a batch that is yet to be chosen, those of the smallest one."""
    if job.largest_batch is not None:
        return grown_size(runtime, job.name).at(1)
    return (known or KnownSizes()).of(runtime, job.name)


def grown_size(runtime: Runtime, job: str) -> SizeByBatch:
    """A job's needs by its batch."""
    layout = runtime.data_of(job).layout
    return size_by_batch(lambda size: runtime.with_batch(job, size).task(job), layout)


def check_memory(spec: EnsembleSpec, cluster: ClusterMap, sizes: Mapping[str, Size]) -> None:
    """Raise BadInput if a job does not fit a device or its host, or the largest do not fit a host together."""
    workers = {job.name: job.virtual_workers for job in spec.jobs}
    for room in rooms_of(spec, cluster):
        found = memory_problem(sizes, workers, room)
        if found is not None:
            raise BadInput(found.text)


def rooms_of(spec: EnsembleSpec, cluster: ClusterMap) -> Sequence[Room]:
    """The nodes that have trainers, as jobs have to fit them."""
    limit, rooms = spec.resources.memory_gib, []
    for node in cluster.nodes:
        trainers = [place for place in cluster.trainers if place.node == node]
        if not trainers:
            continue
        host = trainers[0].node_bytes if limit is None else int(limit * 2**30)
        device, members = trainers[0].device_bytes, cluster.members
        own = None if device is None else device * share_of(members)
        rooms.append(Room(len(trainers), host, own, members))
    return rooms


def _check_shared_memory(spec: EnsembleSpec, cluster: ClusterMap, ring: RingPlan) -> None:
    problem = ring_problem(spec, cluster, ring)
    if problem is not None:
        raise BadInput(problem)


def ring_problem(spec: EnsembleSpec, cluster: ClusterMap, ring: RingPlan) -> str | None:
    """Why a node cannot have such a ring; None: all can."""
    for node in cluster.nodes:
        ranks = cluster.ranks_of(node)
        place = cluster.places[ranks[0]]
        needed = ring.node_bytes(len(ranks))
        if needed > place.shared_bytes:
            return (
                f"the rings need {readable_bytes(needed)} of shared memory on {place.host}, and /dev/shm has "
                f"{readable_bytes(place.shared_bytes)} free: {ring.lanes} lanes of {ring.samples} samples; lower "
                f"resources.ring_samples (now {spec.resources.ring_samples}) or resources.trainers, "
                "or give the node more "
                "(a container: --shm-size; as root: mount -o remount,size=... /dev/shm)"
            )
    return None


_BATCH_NORM = "Expected more than 1"  # as torch's layers begin their refusal


def last_batch_problems(runtime: Runtime) -> Iterator[Problem]:
    """What is wrong with the last batches of jobs, and of trials at the ends of a search's values."""
    origins = runtime.spec.origins
    for job in corner_jobs(runtime.spec):
        refused = _refused(runtime.with_job(job), job) if data_key(job) in runtime.facts else ""
        if refused:
            yield origins.problem(("search", "job"), ABSENT, refused, mend=_mend("the search's job"))
            return
    for position, job in enumerate(runtime.spec.jobs):
        if refused := _refused(runtime, job):
            path: KeyPath = ("jobs", position, "batch_size")
            yield origins.problem(path, job.batch_size, refused, mend=_mend("the job"))


def _mend(where: str) -> str:
    return f"add drop_last: true to {where}, which leaves that batch out; or choose another batch_size"


def _refused(runtime: Runtime, job: Job) -> str:
    """Why the job's network cannot take its last batch; "" if it can, or nothing tells."""
    chosen = job.batches is not None or job.auto_workers or job.largest_batch is not None
    if chosen or job.virtual_workers > runtime.samples_of(job.name):
        return ""
    try:
        last = runtime.plan(job.name).last_batch
    except ValueError as error:  # nothing is left of an epoch
        return str(error)
    if last == job.batch_size:
        return ""
    said = _said(runtime.task(job.name), runtime.data_of(job.name).layout, last)
    if not said:
        return ""
    samples, workers = runtime.samples_of(job.name), job.virtual_workers
    each = f" for each of {workers} virtual workers" if workers > 1 else ""
    return (
        f"{samples} samples in batches of {job.batch_size} leave a last batch of {last}{each}, which the network of "
        f"{job.name} refuses: {said}"
    )


def _said(task: object, layout: SampleLayout, last: int) -> str:
    """What a layer says that needs several samples, where a part of the last batch has one; "": nothing."""
    made: object = task
    if hasattr(made, "collate") or is_parted(made):  # type: ignore[arg-type]
        return ""
    spare_compiler()
    meta = torch.device("meta")
    try:
        with no_exit():
            parts = StepOptions.of(made).parts(made_up_batch(layout, last, meta))  # type: ignore[arg-type]
            if all(len(part[1]) > 1 for part, _ in parts):
                return ""
            model = model_without_memory(made.model)  # type: ignore[attr-defined]
            for part, _ in parts:
                loss_of(made, model, part)  # type: ignore[arg-type]
    except ValueError as error:
        return str(error) if str(error).startswith(_BATCH_NORM) else ""
    except (Exception, SystemExit):  # what fails without data is told elsewhere
        return ""
    return ""


@dataclass(frozen=True)
class MemoryProblem:
    """Jobs that do not fit; the text says which, what they need and what there is."""

    text: str


@dataclass(frozen=True)
class Room:
    """Where a node's jobs have to fit.

    Attributes:
        devices: trainers of the node.
        host: bytes of the node that the run may use.
        device: bytes of an accelerator that are each trainer's; None where the devices are CPUs, which use the host's;
            infinite if unknown.
        members: trainers that share an accelerator.
    """

    devices: int
    host: int
    device: float | None = None
    members: int = 1


def memory_problem(sizes: Mapping[str, Size], workers: Mapping[str, int], room: Room) -> MemoryProblem | None:
    """Tell whether every job fits one device and the host, and whether the largest fit the host together.

    Args:
        sizes: the sizes of each job.
        workers: virtual workers of each job; on one device it runs them all in turn.
        room: the node.
    """
    if room.device is not None:
        needs = {job: size.device_bytes(workers[job]) for job, size in sizes.items()}
        mend = "make its batch or the network smaller"
        what = "on one device, and a device"
        if room.members > 1:
            what = f"on one device, and each of the {room.members} trainers of a device"
            mend += f", or lower resources.members_per_device (now {room.members})"
        found = _too_large(needs, room.device, what, mend)
        if found is not None:
            return found
        needs = {job: _host_bytes(size, workers[job], room) for job, size in sizes.items()}
        what = "for the gradients of its virtual workers, which leave the device for the host, and the node"
        mend = "give it fewer virtual_workers, or raise resources.memory_gib"
    else:
        needs = {job: _host_bytes(size, workers[job], room) for job, size in sizes.items()}
        what = "with its virtual workers on one device, and the node"
        mend = "make its batch or the network smaller, or raise resources.memory_gib"
    return _too_large(needs, room.host, what, mend) or _too_many(needs, room)


class FittingJobs:
    """Jobs that fit a run's nodes; of those that join, each is held against the largest of them alone.

    Args:
        rooms: the nodes.
        sizes: of the jobs.
        workers: virtual workers of each job.
    """

    def __init__(self, rooms: Sequence[Room], sizes: Mapping[str, Size], workers: Mapping[str, int]) -> None:
        self._rooms, self._workers = rooms, dict(workers)
        self._largest = [_largest(sizes, workers, room) for room in rooms]

    def problem(self, job: str, size: Size, workers: int) -> MemoryProblem | None:
        """Why one more job does not fit; None: it does."""
        for largest, room in zip(self._largest, self._rooms):
            counts = {**{each: self._workers[each] for each in largest}, job: workers}
            found = memory_problem({**largest, job: size}, counts, room)
            if found is not None:
                return found
        return None

    def joined(self, job: str, size: Size, workers: int) -> None:
        """One more job has joined the run."""
        self._workers[job] = workers
        self._largest = [
            _largest({**largest, job: size}, self._workers, room) for largest, room in zip(self._largest, self._rooms)
        ]


def _largest(sizes: Mapping[str, Size], workers: Mapping[str, int], room: Room) -> dict[str, Size]:
    """The jobs that need most of a node's memory, as many as it can train at a time."""
    needs = {job: _host_bytes(size, workers[job], room) for job, size in sizes.items()}
    return {job: sizes[job] for job in sorted(needs, key=lambda job: -needs[job])[: room.devices]}


def _host_bytes(size: Size, workers: int, room: Room) -> int:
    return size.cpu_bytes(workers) if room.device is None else size.host_bytes(workers)


def _too_large(needs: Mapping[str, int], there: float, what: str, mend: str) -> MemoryProblem | None:
    too_large = sorted((job for job in needs if needs[job] > there), key=lambda job: -needs[job])
    if not too_large:
        return None
    others = f" (and {len(too_large) - 1} more)" if len(too_large) > 1 else ""
    return MemoryProblem(
        f"job {too_large[0]}{others} needs about {readable_bytes(needs[too_large[0]])} of memory {what} has "
        f"{readable_bytes(int(there))}; {mend}"
    )


def _too_many(needs: Mapping[str, int], room: Room) -> MemoryProblem | None:
    """Tell whether the largest jobs can be on all of a node's devices at once."""
    largest = sorted(needs, key=lambda job: -needs[job])[: room.devices]
    together = sum(needs[job] for job in largest)
    if together <= room.host:
        return None
    fits = max(k for k in range(room.devices) if sum(needs[job] for job in largest[:k]) <= room.host)
    return MemoryProblem(
        f"jobs {', '.join(largest)} can run at the same time on {room.devices} trainers of a node and then need about "
        f"{readable_bytes(together)} of the host's memory, and the node has {readable_bytes(room.host)}; use at most "
        f"{max(1, fits)} trainers a node, or raise resources.memory_gib"
    )


_SAMPLES = 64
_SECONDS = 2.0  # a slow source gives fewer
_SMALL_NETWORK, _SMALL_INPUT = 5_000_000, 2_000_000
"""Parameters of a network, and elements of a batch, that are really run; of larger ones the outputs are made up."""
_ALIKE = 1e-4


_Samples = tuple[Any, Any]
"""Inputs and targets, as preprocessors make them."""


@dataclass(frozen=True)
class _Tried:
    """Batches of the same samples.

    Attributes:
        whole: outputs and targets of all together.
        parts: of some, and of the others.
        real: whether the outputs are the network's own.
    """

    whole: tuple[Any, Any]
    parts: Sequence[tuple[Any, Any]]
    real: bool


class BatchTrials:
    """Tries metrics and losses on some samples of each data set, once for each kind of job.

    Args:
        datasets: by data key, as they are open here.
    """

    def __init__(self, datasets: Mapping[str, Dataset]) -> None:
        self._datasets = datasets
        self._samples: dict[str, _Samples | None] = {}  # by data key, made once
        self._faults: dict[str, list[_Fault]] = {}  # by kind of job

    def problems(self, runtime: Runtime) -> Iterator[Problem]:
        """What is wrong with the jobs of the spec, of a search with its first trial; of each kind of job once."""
        for position, job in enumerate(runtime.spec.jobs):
            if (kind := _kind(job)) not in self._faults:
                yield from self._told(runtime, job, position, kind)

    def newcomer_problems(self, runtime: Runtime, job: Job) -> Iterator[Problem]:
        """What is wrong with a job that comes while others train, such as a later trial: it alone is refused then.

        It is tried with the samples that were made at the start, as preprocessors read the data meanwhile. Of jobs that
        differ in their networks' arguments alone, as the trials of a search do, one is tried.
        """
        if data_key(job) in self._samples:
            yield from self._told(runtime, job, len(runtime.spec.jobs) - 1, _kind_by_names(job))

    def _told(self, runtime: Runtime, job: Job, position: int, kind: str) -> Iterator[Problem]:
        if runtime.rehearsal is not None or data_key(job) not in self._datasets:
            return
        if kind not in self._faults:
            with kept_random_state(), settings_kept(), no_exit(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._faults[kind] = self._faults[_kind_by_names(job)] = list(self._tried(runtime, job))
        for at, value, rule, mend in self._faults[kind]:
            yield runtime.spec.origins.problem(("jobs", position, *at), value, rule, mend=mend)

    def _tried(self, runtime: Runtime, job: Job) -> Iterator[_Fault]:
        data = self._datasets[data_key(job)]
        try:
            task = runtime.task(job.name)
            asked = dict(task.metric_objects) if job.task is None or isinstance(task.own_metrics, Mapping) else {}
            loss = task.loss_to_try
            if (asked or loss) and data_key(job) not in self._samples:
                self._samples[data_key(job)] = _samples(data, job)
            made = self._samples[data_key(job)] if asked and data.held_out or loss else None
            tried = None if made is None else _tried(task, data, made)
        except ReferenceProblem:
            raise
        except (Exception, SystemExit):  # the user's code: the run tells of it where it trains
            return
        if tried is None:
            return
        if loss is not None:
            yield from _of_loss(loss, task.comes_in_parts, tried, job)
        one_batch = data.held_out <= evaluation_batch_of(task, job.global_batch)
        for number, (name, metric) in enumerate(asked.items() if data.held_out else ()):
            found = _problem_of(metric, tried, one_batch)
            if found is not None:
                at = ("metrics", number) if job.task is None else ("task", "name")
                value = name if job.task is not None else _written(job, number)
                yield at, value, f"metric {name}: {found[0]}", found[1]


_Fault = tuple[KeyPath, Any, str, str]
"""Where in a job, the value, the rule, the mend."""
_TOLD = {"model", "task", "loss", "metrics", "evaluation_batch_size", "accumulate", "batch"}
"""Keys of a job by which it is another kind."""


def _kind(job: Job) -> str:
    return json.dumps([job.model_dump(mode="json", include=_TOLD), data_key(job)], sort_keys=True)


def _kind_by_names(job: Job) -> str:
    """The kind of a job without the arguments of its network."""
    told = job.model_dump(mode="json", include=_TOLD - {"model"})
    return json.dumps([job.model and job.model.name, told, data_key(job)], sort_keys=True)


def _of_loss(loss: JobLoss, why: str, tried: _Tried, job: Job) -> Iterator[_Fault]:
    try:
        loss.try_parts(*tried.whole, why)
    except UnfitTask as error:
        rule, _, mend = str(error).partition(". So ")
        shapes = " and ".join(f"{what} are {_shape(each)}" for what, each in zip(("outputs", "targets"), tried.whole))
        yield ("loss",), job.loss.name if job.loss else None, f"{rule}; {shapes}", mend


def _written(job: Job, number: int) -> Any:
    entry = job.metrics[number]
    return entry if isinstance(entry, str) else entry.model_dump(exclude_defaults=True)


def _problem_of(metric: Metric, tried: _Tried, one_batch: bool) -> tuple[str, str] | None:
    """Why a metric cannot be measured, and the mend; None: it can."""
    before = _part_of(metric, tried.parts[0])
    try:
        _value(metric, [tried.whole])
    except Misfit as error:
        rule, _, mend = str(error).rpartition("; ")
        return rule or str(error), mend
    except Exception as error:  # the user's code may raise anything
        if not tried.real:
            return None
        shapes = " and ".join(f"{what} {_shape(each)}" for what, each in zip(("outputs", "targets"), tried.whole))
        text = str(error).splitlines()[0] if str(error) else "no message"
        rule = f"it raises {type(error).__name__}: {text}, of {shapes}"
        return rule, "let it take these, or name another metric"
    after = _part_of(metric, tried.parts[0])
    if not _alike(before, after):
        return f"of the same samples it gives {before:.6g}, then {after:.6g}: it keeps what it has seen", _ANEW
    for whole, parts in () if one_batch else ((tried.whole, tried.parts), *_shaken(tried)):
        with suppress(Exception):
            together, apart = _value(metric, [whole]), _value(metric, parts)
            if not _alike(together, apart):
                rule = f"of the same samples in one batch it gives {together:.6g}, in two {apart:.6g}"
                return f"{rule}: its sums and counts are not those of samples, so batches change it", _WHOLE_SET
    return None


def _part_of(metric: Metric, part: tuple[Any, Any]) -> float:
    """The value of some samples, for which it may be worth nothing."""
    try:
        return _value(metric, [part])
    except Exception:  # the user's code may raise anything; of all samples it is told
        return math.nan


_ANEW = "make it a function of (outputs, targets), or a class of torchmetrics, whose states begin anew with each batch"
_WHOLE_SET = (
    "name a metric of the whole set, such as the built-in auroc or f1, or a class of torchmetrics; or let "
    "evaluation_batch_size take all held-out samples at once"
)


def _value(metric: Metric, batches: Sequence[tuple[Any, Any]]) -> float:
    return metric.value([metric.state(*batch) for batch in batches])


def _alike(one: float, other: float) -> bool:
    """Whether two values are the same but for rounding; one that is no number tells nothing."""
    return not (math.isfinite(one) and math.isfinite(other)) or math.isclose(one, other, rel_tol=_ALIKE, abs_tol=_ALIKE)


def _shaken(tried: _Tried) -> Iterator[tuple[tuple[Any, Any], Sequence[tuple[Any, Any]]]]:
    """The same with noise on the outputs, as an untrained network may give one class to all samples."""
    outputs, targets = tried.whole
    if isinstance(outputs, Tensor) and isinstance(targets, Tensor) and outputs.is_floating_point() and len(outputs) > 1:
        noise = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(0)).to(outputs.dtype)
        shaken = outputs + noise * (outputs.std() + 1)
        if bool(((outputs >= 0) & (outputs <= 1)).all()):  # they may be probabilities
            shaken = shaken.sigmoid()
        yield (shaken, targets), _cut(shaken, targets, max(1, len(outputs) // 3))


def _tried(task: SpecTask, data: Dataset, made: _Samples) -> _Tried:
    """Some held-out samples with the network's outputs; whatever the network raises."""
    inputs, targets = made
    order = sorted(range(len(inputs)), key=lambda row: inputs[row].nbytes)  # the short ones, then the long ones
    cut = max(1, len(order) // 3)
    rows = [order, order[:cut], order[cut:]] if len(order) > 1 else [order]
    batches = [task.prepared(_batch(task, data, inputs[some], targets[some])) for some in rows]
    network, real = _network(task, batches[0][0])
    with torch.no_grad():
        if real:
            whole, *parts = [(network(given), wanted) for given, wanted in batches]
        else:
            whole = (network(batches[0][0]), batches[0][1])
            parts = _cut(*whole, cut) if len(order) > 1 and isinstance(whole[1], Tensor) else []
    return _Tried(whole, parts or [whole], real)


def _cut(outputs: Tensor, targets: Tensor, cut: int) -> list[tuple[Tensor, Tensor]]:
    return [(outputs[:cut], targets[:cut]), (outputs[cut:], targets[cut:])]


def _samples(data: Dataset, job: Job) -> _Samples | None:
    """Held-out samples, or training samples where there are none, spread over all, as far as they can be made."""
    kind, length = (HELD_OUT, data.held_out) if data.held_out else (TRAIN, data.length)
    begin, count, good = time.monotonic(), min(_SAMPLES, length), []
    inputs, targets = data.layout.empty(count)
    place = places_in(inputs)
    for row in range(count):
        sample = row * length // count
        if data.attempt(kind, job.order_seed, sample, place(row), targets[row : row + 1]):
            good.append(row)
        if len(good) > 1 and time.monotonic() - begin > _SECONDS:
            break
    return (inputs[good], targets[good]) if good else None


def _batch(task: SpecTask, data: Dataset, inputs: Any, targets: Any) -> tuple[Any, Any]:
    if data.layout.is_ragged:
        batch: tuple[Any, Any] = collated(inputs, task.collate)
        return batch
    return torch.from_numpy(inputs), torch.from_numpy(targets)


def _network(task: SpecTask, inputs: Any) -> tuple[Callable[[Any], Any], bool]:
    """What gives outputs for inputs, and whether that is the network itself.

    A large one is asked on torch's meta device for the shapes alone.
    """
    shape = model_without_memory(task.model)
    sizes = [each.numel() for each in _tensors(inputs)]
    if sum(map(_elements, shape.parameters())) <= _SMALL_NETWORK and sum(sizes) <= _SMALL_INPUT:
        return task.model().eval(), True
    return _made_up(shape.eval()), False


def _elements(weight: nn.Parameter) -> int:
    return 0 if isinstance(weight, torch.nn.parameter.UninitializedParameter) else weight.numel()


def _made_up(network: nn.Module) -> Callable[[Any], Any]:
    def outputs(inputs: Any) -> Any:
        found = network(move(inputs, torch.device("meta")))
        if not isinstance(found, Tensor):
            raise TypeError("only tensors are made up")
        return torch.randn(found.shape, generator=torch.Generator().manual_seed(0)).to(found.dtype)

    return outputs


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(item)


def _shape(value: Any) -> str:
    return f"of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"of type {type(value).__name__}"
