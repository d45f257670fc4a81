"""A job of the spec -> the plain task that a trainer trains."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import OneCycleLR

from fleet.spec.data import Data
from fleet.spec.inputs import InputPreparation, collate_of, prepared_targets
from fleet.spec.job import STEP_OPTIONS, Job
from fleet.spec.metrics import metric_name, named_metric
from fleet.spec.named_parts import DEFAULT_LOSS, JobLoss, built_optimizer, built_schedule, makers_of, schedule_of
from fleet.spec.references import resolve
from fleet.spec.run_length import Length, drops_last, follows_run, with_run
from trainers.repeatable.process_settings import settings_kept
from trainers.repeatable.random_state import seeded
from trainers.task.batch_plan import BatchSchedule
from trainers.task.loss import IGNORED, UnfitTask, Weight
from trainers.task.metrics import Form, Kind, Metric
from trainers.task.task import Batch, Sums, metric_objects, states_of

_AS_WRITTEN = (
    "before_step",
    "after_step",
    "state",
    "load_state",
    "optimizers",
    "schedulers",
    "collate",
    "largest_sample",
)
"""Methods of a task class that a task has where the class has them, and lacks where it lacks them."""
_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("cross_entropy", "nll_loss", "CrossEntropyLoss", "NLLLoss", "multi_margin_loss"), "multiclass"),
    **dict.fromkeys(("multilabel_soft_margin_loss", "MultiLabelSoftMarginLoss"), "multilabel"),
    **dict.fromkeys(("binary_cross_entropy_with_logits", "BCEWithLogitsLoss"), "binary"),
    **dict.fromkeys(("binary_cross_entropy", "BCELoss"), "binary"),
}
"""What losses of torch classify."""
_OF_PROBABILITIES = frozenset({"binary_cross_entropy", "BCELoss"})


class SpecTask:
    """What one job trains: built from its entry in the spec, or around its task class.

    Attributes:
        name: the job's name.
        batch_size: samples of one virtual worker in a step; where that changes, the job's own.
        evaluation_batch_size: held-out samples that are evaluated together; None: as many as in a step.
        drop_last: whether a virtual worker leaves its last batch of an epoch out where that has fewer samples.
        batch_schedule: which batch each epoch has, where that changes.
        seed, order_seed: the job's, of its weights and of the order of its samples.
        samples: gives how many it trains on in an epoch; None: nobody has said.
        evaluates_in_parts: whether held-out samples are known to be several batches.
        accumulate, autocast, clip_norm, clip_value, compile: what it asks of a step, None where nothing.
        largest_sample: gives a sample as large as any, where samples are packed; the class's own, or the runtime's.
    """

    largest_sample: Callable[[], Any]

    def __init__(self, job: Job, data: Data | None = None, batches: BatchSchedule | None = None) -> None:
        """Look up all names of the job; nothing is built yet. What their modules set for the process is put back.

        Args:
            job: the job.
            data: its data set's section; None if the job's task class brings its own.
            batches: which batch each epoch has; None: all have the job's.

        Raises:
            ReferenceProblem: a name leads nowhere. ``fleet.spec.check`` finds all of them beforehand.
        """
        self.name, self.batch_size = job.name, job.batch_size
        self.seed, self.order_seed = job.weights_seed, job.order_seed
        self.evaluation_batch_size, self.batch_schedule = job.evaluation_batch_size, batches
        if batches is not None:
            self.batch_size = batches.own
        self._job, self._data, self.evaluates_in_parts = job, data, False
        self.samples: Callable[[], int] | None = None
        self._prepare = InputPreparation(data.normalise if data else None)
        with settings_kept(), seeded(job.order_seed):
            self._user: Any = resolve(job.task.name)(**job.task.arguments) if job.task else None
        says = self._user if job.task else job
        self.accumulate, self.autocast, self.clip_norm, self.clip_value, self.compile = (
            getattr(says, name, None) for name in STEP_OPTIONS
        )
        self.drop_last = drops_last(job)
        self.scratch = tuple(getattr(self._user, "scratch", ()))
        for name in _AS_WRITTEN:
            if hasattr(self._user, name):
                setattr(self, name, getattr(self._user, name))
        if self._is_collated:
            assert data is not None and data.collate is not None
            self.collate = collate_of(data.collate)
        if hasattr(self._user, "step"):
            self.step = self._step
            self.scheduler = None  # type: ignore[method-assign,assignment]
            self.measures_loss = hasattr(self._user, "loss")
        with settings_kept():
            self._model = resolve(job.model.name) if job.model else None  # now: modules may seed when they are imported
            self._optimizers = makers_of(job.optimizer) if job.optimizer else {}
            self._schedule = schedule_of(job.schedule.name) if job.schedule else None
            self._loss = JobLoss(job)
            self.metric_objects: Mapping[str, Metric] = metrics_of(job, data, self._loss.function)
            if self._user is not None:
                self.metric_objects = metric_objects(self._user)
        self._last: tuple[weakref.ref[Any], weakref.ref[Tensor], weakref.ref[Tensor]] | None = None

    def model(self) -> nn.Module:
        """Build the network; the job's seed is set when this is called."""
        if self._user is not None:
            return self._user.model()  # type: ignore[no-any-return]
        assert self._model is not None and self._job.model is not None
        model: nn.Module = self._model(**self._job.model.arguments)
        if self._job.memory_format is not None:
            model.to(memory_format=getattr(torch, self._job.memory_format))  # type: ignore[call-overload]
        return model

    def written(self) -> Mapping[str, object]:
        """Return what of the job a person may have written."""
        if self._user is not None:
            return {"task": self._user}
        optimizers = {f"optimizer {name}": code for name, code in self._optimizers.items()}
        if len(optimizers) == 1:
            optimizers = {"optimizer": next(iter(optimizers.values()))}
        more = {} if self._schedule is None else {"schedule": self._schedule}
        return {"loss": self._loss.function, **optimizers, **more}

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Build the optimizer over all parameters of the model."""
        if self._user is not None:
            return self._user.optimizer(model)  # type: ignore[no-any-return]
        assert self._job.optimizer is not None
        return built_optimizer(self._job.optimizer, self._optimizers, list(model.named_parameters()))

    def scheduler(self, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler | None:
        """Build the learning-rate schedule; None for a constant rate.

        Raises:
            ValueError: it is as long as the run, and nobody has said how many samples an epoch has.
            UnfitTask: it raises before the run is over.
        """
        made: Any
        if self._user is not None:
            made = self._user.scheduler(optimizer) if hasattr(self._user, "scheduler") else None
        else:
            length, asked, warm_up = self.length, self._job.schedule, self._job.warm_up
            if not length.is_known and (follows_run(self._job) or warm_up is not None):
                raise ValueError(f"job {self.name}: how long its schedule is, is known once its data are open")
            arguments = with_run(asked.arguments, length.left) if asked is not None else {}
            factor = 1.0 if warm_up is None else warm_up.start_factor
            made = built_schedule(optimizer, self._schedule, arguments, length.warm_up, factor)
        self._hold_length(made)
        return made  # type: ignore[no-any-return]

    @property
    def length(self) -> Length:
        """How long the job trains, in the unit that its schedule counts."""
        return Length.of(self._job, None if self.samples is None else self.samples(), self.batch_size)

    @property
    def schedule_each(self) -> str:
        """Whether the schedule is stepped once a "step" or once an "epoch"."""
        if self._user is not None:
            return str(getattr(self._user, "schedule_each", "step"))
        return "step" if self._job.schedule is None else self._job.schedule.each

    def _hold_length(self, made: Any) -> None:
        """Raise UnfitTask if a schedule raises before the run is over: of a task class, nobody knows earlier."""
        length = replace(self.length, unit=self.schedule_each)
        if isinstance(made, OneCycleLR) and length.is_known and made.total_steps < length.left:
            raise UnfitTask(
                f"job {self.name}: its OneCycleLR raises an error after {made.total_steps} {length.unit}s, and the run "
                f"has {length}; make it as long"
            )

    def _step(self, model: nn.Module, batch: Batch) -> Iterator[tuple[str, Tensor]]:
        yield from self._user.step(model, self.prepared(batch))

    def dataset(self, train: bool) -> Any:
        """The task class's own data set (held-out: None if it has none).

        Raises:
            ValueError: the job's data are a section of the spec; its samples come from preprocessors.
        """
        if self._user is None or self._data is not None:
            raise ValueError(f"the samples of job {self.name!r} come from data {self._job.data!r} of the spec")
        return self._user.dataset(train)

    def prepare(self, inputs: Any) -> Any:
        """A batch of inputs as it arrives -> as the network takes it; see ``InputPreparation``."""
        return inputs if self._data is None or self._is_collated else self._prepare(inputs)

    def _targets(self, targets: Any) -> Any:
        return targets if self._data is None or self._is_collated else prepared_targets(targets)

    @property
    def _is_collated(self) -> bool:
        """Whether batches come as the data section's `collate` makes them."""
        return self._data is not None and self._data.collate is not None

    def prepared(self, batch: Batch) -> Batch:
        """A batch as it arrives -> as the network, the loss and the metrics take it."""
        return self.prepare(batch[0]), self._targets(batch[1])

    @property
    def own_metrics(self) -> Any:
        """What the task class has as `metrics`; None: nothing, or there is no such class."""
        return getattr(self._user, "metrics", None)

    def loss(self, model: nn.Module, batch: Batch) -> Any:
        """The mean loss of a batch as it arrives, a scalar, or with what it was divided by, as the user's code says.

        Raises:
            UnfitTask: batches come in parts, and the loss is no mean over samples and does not say what it divides by.
        """
        inputs, targets = batch[0], self._targets(batch[1])
        prepared = self.prepare(inputs)
        self._remember(model, inputs, prepared)
        if hasattr(self._user, "loss"):
            return self._user.loss(model, (prepared, targets))
        return self._loss(model(prepared), targets)

    @property
    def loss_to_try(self) -> JobLoss | None:
        """A person's loss whose batches come in parts: it is to be a mean over samples, or to say its weight."""
        return self._loss if self._user is None and self._loss.is_custom and self.comes_in_parts else None

    def loss_weight(self, batch: Batch) -> Weight | None:
        """Return what the loss of a batch as it arrives divides by, as far as the batch tells it."""
        if hasattr(self._user, "loss") or hasattr(self._user, "step"):
            known = getattr(self._user, "loss_weight", None)
            return known((self.prepare(batch[0]), self._targets(batch[1]))) if known else None
        return self._loss.weight(self._targets(batch[1]))

    @property
    def loss_is_sum(self) -> bool:
        """Whether the loss divides by nothing."""
        return not hasattr(self._user, "loss") and self._loss.is_sum

    @property
    def ignored_target(self) -> float | None:
        """What stands for targets that are left out, where the data say so; None: what torch takes."""
        if self._data is None or self._data.collate is None or self._data.collate.name != "pad":
            return None
        return float(self._data.collate.arguments.get("target_value", IGNORED))  # type: ignore[arg-type]

    @property
    def comes_in_parts(self) -> str:
        """Why the loss of a batch is added up from parts; "" where it is not."""
        if (self.accumulate or 1) > 1:
            return f"accumulate: {self.accumulate}"
        if self._job.batch is not None:
            return "a batch that a policy may cut"
        return "several batches of held-out samples" if self.evaluates_in_parts else ""

    def metrics(self, model: nn.Module, batch: Batch) -> Sums:
        """Metric's name -> (sum over the samples, number of samples), or its state, for a batch as it arrives."""
        inputs, targets = batch[0], self._targets(batch[1])
        prepared = self._remembered(model, inputs)
        if callable(self.own_metrics):
            return self._user.metrics(model, (prepared, targets))  # type: ignore[no-any-return]
        return states_of(self.metric_objects, self, model, (prepared, targets))

    def _remember(self, model: Any, inputs: Any, prepared: Any) -> None:
        """Keep, for ``metrics`` of the same model and batch, what was prepared, as long as somebody else holds it.

        A caller who remembers outputs by input then meets the same input.
        """
        self._last = None
        if prepared is not inputs and isinstance(inputs, Tensor):
            self._last = (weakref.ref(model), weakref.ref(inputs), weakref.ref(prepared))

    def _remembered(self, model: Any, inputs: Any) -> Any:
        if self._last is not None and self._last[0]() is model and self._last[1]() is inputs:
            prepared = self._last[2]()
            if prepared is not None:
                return prepared
        return self.prepare(inputs)


def metrics_of(job: Job, data: Data | None, loss: Any) -> dict[str, Metric]:
    """The metrics that a job names.

    Raises:
        ReferenceProblem: there is no such metric.
    """
    if job.task is not None:
        return {}
    form = form_of(job, data, loss)
    return {metric_name(entry): named_metric(entry, form) for entry in job.metrics}


def form_of(job: Job, data: Data | None, loss: Any) -> Form:
    """Return how the outputs and targets of a job with a model are read, as far as its loss and its data tell.

    Args:
        loss: the job's, as it is called.
    """
    name, arguments = (job.loss.name, job.loss.arguments) if job.loss else (DEFAULT_LOSS, {})
    short = name.rpartition(":")[2] if ":" not in name or name.startswith("torch.nn") else ""
    pads = data is not None and data.collate is not None and data.collate.name == "pad"
    padding = _number(data.collate.arguments.get("target_value", IGNORED)) if pads else None  # type: ignore[union-attr]
    said = _number(arguments.get("ignore_index", getattr(loss, "ignore_index", None)))
    otherwise = IGNORED if padding is None or short in _KINDS else padding
    return Form(_KINDS.get(short), otherwise if said is None else said, padding, short in _OF_PROBABILITIES)


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
