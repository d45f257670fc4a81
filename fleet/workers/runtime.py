"""What every rank knows of the ensemble: the spec, and the few facts about its data that need them opened."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch
from pydantic import TypeAdapter
from torch import nn

from fleet.coordination.protocol import SetBatch
from fleet.profiling.sizing import KnownOperators, Size, size_of
from fleet.spec import EnsembleSpec, Job, SpecTask
from fleet.spec.directions import directions
from fleet.spec.inputs import InputPreparation
from fleet.spec.job import STEP_OPTIONS, data_key
from fleet.spec.metrics import Direction
from fleet.spec.run_length import drops_last
from fleet.spec.subsets import part_of
from fleet.spec.trials import has_folds
from fleet.workers.feed import Reading
from preprocess import SampleLayout
from preprocess.samples.fingerprint import Fingerprint
from preprocess.samples.layout import Indices
from preprocess.samples.order import BlockOrder
from preprocess.samples.part import MemberOrder, Part, member_order
from trainers import BatchPlan, Stop, Task
from trainers.repeatable.process_settings import no_exit
from trainers.state.kept_checkpoints import ByMetric
from trainers.state.tree import of_outline
from trainers.task.batch_plan import BatchChange, BatchSchedule
from trainers.task.parts import rules_of


@dataclass(frozen=True)
class DataFacts:
    """A data set's sizes and the layout of its samples.

    Attributes:
        largest: where samples are packed, the outline of the largest one, see `trainers.state.tree.outline`.
        kept: preparing a sample takes so much longer than fetching it that prepared ones are worth keeping.
        blocks: the order of an epoch, where that goes by blocks.
        block_bytes: a block takes so many once it is read; 0: nothing of it is kept.
        cache_bytes: a process keeps so many of blocks.
        prints: by kind, the fingerprints of what rank 0 has opened.
    """

    samples: int
    held_out: int
    layout: SampleLayout
    largest: str = ""
    kept: bool = False
    blocks: BlockOrder | None = None
    block_bytes: int = 0
    cache_bytes: int = 0
    prints: Mapping[str, Fingerprint] = field(default_factory=dict)


FACTS: TypeAdapter[dict[str, DataFacts]] = TypeAdapter(dict[str, DataFacts])
"""Reads and writes the facts of all data sets as plain values."""


@dataclass(frozen=True)
class Rehearsal:
    """Compute is a wait: `time_scale` seconds for one second of a real run."""

    time_scale: float


@dataclass(frozen=True)
class Runtime:
    """The spec with the facts of its data; the same on every rank.

    Attributes:
        facts: by data key, see `data_key`.
        batches: job -> its batches by epoch, of jobs whose batch has changed.
        rehearsal: None for a real run.
        timeout: seconds that a wait for another rank may take.
    """

    spec: EnsembleSpec
    facts: Mapping[str, DataFacts] = field(default_factory=dict)
    rehearsal: Rehearsal | None = None
    timeout: float = 300.0
    batches: Mapping[str, BatchSchedule] = field(default_factory=dict)

    def with_job(self, job: Job) -> Runtime:
        """Return a runtime with one job more, whose data is among those that are open."""
        return replace(self, spec=self.spec.with_job(job))

    def with_batch(self, name: str, batch_size: int) -> Runtime:
        """Return a runtime in which a job's virtual workers have this batch size, which is then fixed."""
        return self._with(_sized(self.job(name), _fixed(batch_size)))

    def with_change(self, name: str, change: BatchChange) -> Runtime:
        """Return a runtime in which a job has another batch from the epoch on that it is about to train."""
        batches = self.batches_of(name)
        assert batches is not None, "the batch of other jobs does not change"
        known = {**self.batches, name: batches.changed(change)}
        return replace(self._with(_sized(self.job(name), {"batch_size": change.size})), batches=known)

    def for_measuring(self, name: str, batch_size: int = 0) -> Runtime:
        """Return a runtime in which a job has this batch size in all epochs; 0: its spec's, if its batch changes."""
        return self._with(self._measured(name, batch_size))

    def _measured(self, name: str, batch_size: int = 0) -> Job:
        """The job as it is measured; see `for_measuring`."""
        job, known = self.job(name), self.batches_of(name)
        changes = job.batch is not None and job.batch.change == "epochs"
        return _sized(job, _fixed(batch_size or (known.own if known and changes else job.batch_size)))

    def _with(self, mine: Job) -> Runtime:
        """Return a runtime with this job in place of that of its name."""
        return replace(self, spec=self.spec.with_changed_job(mine))

    @property
    def own_spec(self) -> EnsembleSpec:
        """The spec with each job's own batch, where it has another one now."""
        known = ((job, self.batches_of(job.name)) for job in self.spec.jobs)
        jobs = (
            job if batches is None else job.model_copy(update={"batch_size": batches.own}) for job, batches in known
        )
        return self.spec.with_jobs(tuple(jobs))

    def batches_of(self, name: str) -> BatchSchedule | None:
        """Which batch each epoch of a job has; None where it does not change."""
        job = self.job(name)
        if job.batch is None or name in self.batches:
            return None if job.batch is None else self.batches[name]
        return BatchSchedule(job.batch_size, job.batch.learning_rate, job.batch.warm_up, self.samples_of(name))

    def job(self, name: str) -> Job:
        return self.spec.job(name)

    def task(self, name: str) -> SpecTask:
        """A fresh task of the job."""
        job = self.job(name)
        data = self.spec.data[job.data] if job.data is not None else None
        task = SpecTask(job, data, self.batches_of(name))
        if data_key(job) in self.facts:
            task.samples, task.evaluates_in_parts = partial(self.samples_of, name), self.evaluates_in_parts(name)
        if data is not None and data.collate is not None:
            task.largest_sample = partial(self._largest_sample, name)
        return task

    def _largest_sample(self, name: str) -> Any:
        """Return a sample as large as any of a job whose samples are packed, all zero."""
        return of_outline(self.data_of(name).largest)

    def reading(self, name: str, layout: SampleLayout, task: Task) -> Reading:
        """How the trainers of a job, whose task that is, read samples of a layout."""
        job = self.job(name)
        prepare = InputPreparation(self.spec.data[job.data].normalise) if job.data is not None else None
        return Reading(
            self.rehearsal is None, prepare is not None and prepare.copies(layout), getattr(task, "collate", None)
        )

    def stop(self, name: str) -> Stop:
        """When the job is done. A rehearsal's metrics are made up: it goes by epochs alone."""
        stop = self.job(name).stop
        if self.rehearsal is not None:
            return Stop(stop.epochs)
        watches = stop.target or stop.patience is not None
        return stop_of(self.job(name), directions(self.spec, self.job(name)) if watches else {})

    @property
    def keeps_best(self) -> bool:
        """Whether best checkpoints are kept. A rehearsal's metrics are made up."""
        return self.rehearsal is None and self.spec.checkpoints.best is not None

    def best_by(self, name: str) -> ByMetric | None:
        """By what the best checkpoint of a job is found; None: none is kept."""
        best = self.spec.checkpoints.best
        if best is None or not self.keeps_best:
            return None
        return ByMetric(best, directions(self.spec, self.job(name))[best])

    def data_of(self, name: str) -> DataFacts:
        return self.facts[data_key(self.job(name))]

    def samples_of(self, name: str) -> int:
        """How many samples an epoch of the job has."""
        part, samples = part_of(self.job(name)), self.data_of(name).samples
        return samples if part is None else part.train_count(samples)

    def own_order(self, name: str) -> MemberOrder | None:
        """Which samples of its stream are the job's own; None: all."""
        job, data = self.job(name), self.data_of(name)
        part = part_of(job)
        return None if part is None else member_order(part, data.samples, job.order_seed, data.blocks)

    def held_out_of(self, name: str) -> int:
        """How many samples the job is evaluated on."""
        job, data = self.job(name), self.data_of(name)
        if not has_folds(self.spec, data_key(job)):
            return data.held_out
        return (part_of(job) or Part()).held_out_count(data.samples)

    def evaluates_in_parts(self, name: str) -> bool:
        """Whether the job's held-out samples are more than one batch of evaluation."""
        job, batches = self.job(name), self.batches_of(name)
        own = job.batch_size if batches is None else batches.own
        return self.held_out_of(name) > (job.evaluation_batch_size or job.virtual_workers * own)

    def own_held_out(self, name: str) -> Indices | None:
        """Which held-out samples of its data set the job is evaluated on, ascending; None: all.

        Where the data set is divided into folds, all training samples lie there, and without a fold none is for it.
        """
        job = self.job(name)
        if not has_folds(self.spec, data_key(job)):
            return None
        return (part_of(job) or Part()).held_out(self.data_of(name).samples)

    def plan(self, name: str) -> BatchPlan:
        """How the job's epoch is split over its virtual workers."""
        job = self.job(name)
        return BatchPlan(self.samples_of(name), job.virtual_workers, job.batch_size, drops_last(job))

    def trained_in_epoch(self, name: str) -> int:
        """How many samples the job trains on in an epoch, without those that it leaves out or that pad its end."""
        return min(self.samples_of(name), self.plan(name).taken)

    def fingerprint(self, name: str, device: str) -> str:
        """A digest of all that the job's rate on such a device depends on.

        Args:
            device: its model, or its kind as torch names it.
        """
        job = self._measured(name)
        parts = job.model_dump(
            mode="json", include={"model", "task", "optimizer", "schedule", "loss", "virtual_workers", "batch_size"}
        )
        (parts["schedule"] or {}).pop("each", None)  # which no rate depends on
        parts |= job.model_dump(mode="json", include={"memory_format", *STEP_OPTIONS}, exclude_none=True)
        layout = asdict(self.data_of(name).layout)
        del layout["mean_bytes"], layout["names_substitutes"]  # the largest sample is what is measured
        everything = [parts, layout, device.partition(":")[0], self.spec.resources.threads]
        if self.spec.resources.members_per_device > 1 and device.partition(":")[0] != "cpu":
            everything.append(self.spec.resources.members_per_device)
        determinism = self.spec.determinism
        if determinism.level == "D2":
            everything.append(determinism.pinned_to)  # its kernels are slower
        everything += sorted(determinism.chosen_float32.items())
        return hashlib.blake2b(json.dumps(everything, sort_keys=True).encode(), digest_size=12).hexdigest()


def _sized(job: Job, values: Mapping[str, Any]) -> Job:
    """The job with another batch size, and what else the values say."""
    return job.with_batch_size(values["batch_size"]).model_copy(update=values)


def _fixed(batch_size: int) -> Mapping[str, Any]:
    """The values of a job whose batch size is this for good."""
    return {"batch_size": batch_size, "batch_range": None, "batch": None}


def stop_of(job: Job, better: Mapping[str, Direction]) -> Stop:
    """When a job of a spec is done, with what is known of the directions of its metrics. ValueError if one lacks."""
    stop = job.stop
    return Stop(stop.epochs, dict(stop.target), stop.patience, stop.minimum_improvement, stop.monitored, dict(better))


def batch_set(runtime: Runtime, news: SetBatch) -> Runtime:
    """The runtime once a job's batch is set."""
    if news.epoch is None:
        return runtime.with_batch(news.job, news.batch_size)
    return runtime.with_change(news.job, BatchChange(news.epoch, news.batch_size, news.parts))


_NO_MATTER = {
    "name",
    "seed",
    "subset",
    "folds",
    "fold",
    "bag",
    "metrics",
    "schedule",
    "virtual_workers",
    "stop",
    "deadline",
    "soft",
    "user",
    "priority",
    "guaranteed",
    "minimum_devices",
    "service_level",
    "arrival",
}
_NO_RULE = _NO_MATTER - {"subset", "folds", "fold", "bag", "schedule", "virtual_workers", "stop"}
"""What, beside, no optimizer and no schedule depends on, which may be as long as the run."""
_RATES = ("lr", "weight_decay")  # torch's optimizers need as much with any of them
_KEPT = 64  # networks, and jobs that were asked for last


class KnownSizes:
    """Sizes that were found. Trials of a search, of which most differ in their rates alone, have the same."""

    def __init__(self) -> None:
        self._found: dict[str, Size] = {}
        self._operators = KnownOperators()
        self._networks: dict[str, nn.Module] = {}  # on torch's meta device
        self._last: dict[str, Size] = {}

    def of(self, runtime: Runtime, name: str) -> Size:
        """The size of a job of the runtime; whatever its code raises."""
        job = runtime.job(name)
        key = _key(job)
        if key is None:
            return size_of(runtime.task(name), runtime.data_of(name).layout, self._operators)
        whole = json.dumps([data_key(job), job.model_dump(mode="json", exclude=_NO_RULE)], sort_keys=True)
        if whole not in self._last:
            _keep(self._last, whole, self._of_its_kind(runtime, name, key))
        return self._last[whole]

    def _of_its_kind(self, runtime: Runtime, name: str, key: str) -> Size:
        """The size of all jobs of this key; the job's own arguments may be such as nothing can be made of."""
        task = runtime.task(name)
        if key not in self._found:
            self._found[key] = size_of(task, runtime.data_of(name).layout, self._operators)
            return self._found[key]
        with no_exit(), torch.device("meta"):
            if key not in self._networks:
                _keep(self._networks, key, task.model())
            rules_of(task, self._networks[key])
        return self._found[key]


def _keep(known: dict[str, Any], key: str, value: Any) -> None:
    """Keep one more, and the oldest no longer."""
    known[key] = value
    if len(known) > _KEPT:
        del known[next(iter(known))]


def _key(job: Job) -> str | None:
    """What a size depends on; None: on a person's code, which may look at anything."""
    optimizer = job.optimizer
    if job.task is not None or optimizer is None:
        return None
    told = job.model_dump(mode="json", exclude=_NO_MATTER)
    if optimizer.name is not None and ":" not in optimizer.name:
        arguments = {key: _matters(value) for key, value in optimizer.arguments.items() if key not in _RATES}
        told["optimizer"] = {**told["optimizer"], "arguments": arguments}
    return json.dumps([data_key(job), told], sort_keys=True)


def _matters(value: Any) -> Any:
    """What of an argument of torch's optimizers matters: of one with decimals, such as momentum, whether it is 0."""
    if isinstance(value, (list, tuple)):
        return [_matters(each) for each in value]
    return f"{value != 0}" if isinstance(value, float) else value
