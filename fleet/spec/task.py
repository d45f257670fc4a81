"""A job of the spec -> the plain task that a trainer trains."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from fleet.spec.built_optimizer import built_optimizer, makers_of
from fleet.spec.collating import collate_of
from fleet.spec.dropping import drops_last
from fleet.spec.inputs import InputPreparation, prepared_targets
from fleet.spec.job import Job
from fleet.spec.key_rules import STEP_OPTIONS
from fleet.spec.metrics import metric_name, named_metric
from fleet.spec.references import resolve
from fleet.spec.sections import Data
from fleet.spec.torch_names import named_loss, schedule_of
from trainers.repeatable.process_settings import settings_kept
from trainers.repeatable.random_state import seeded
from trainers.task.batch_schedule import BatchSchedule
from trainers.task.task import Batch, Sums

DEFAULT_LOSS = "cross_entropy"
_AS_WRITTEN = (
    "before_step", "after_step", "state", "load_state", "optimizers", "schedulers", "collate", "largest_sample",
)  # fmt: skip
"""Methods of a task class that a task has where the class has them, and lacks where it lacks them."""
_BROADCASTING = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"})


class SpecTask:
    """What one job trains: built from its entry in the spec, or around its task class.

    Attributes:
        name: the job's name.
        batch_size: samples of one virtual worker in a step; where that changes, the job's own.
        evaluation_batch_size: held-out samples that are evaluated together; None: as many as in a step.
        drop_last: whether a virtual worker leaves its last batch of an epoch out where that has fewer samples.
        batch_schedule: which batch each epoch has, where that changes.
        seed, order_seed: the job's, of its weights and of the order of its samples.
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
        self._job, self._data = job, data
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
            self._loss = loss_function(job)
            self._metrics = {metric_name(text): named_metric(text) for text in job.metrics}
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
        return {"loss": self._loss, **optimizers, **more}

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Build the optimizer over all parameters of the model."""
        if self._user is not None:
            return self._user.optimizer(model)  # type: ignore[no-any-return]
        assert self._job.optimizer is not None
        return built_optimizer(self._job.optimizer, self._optimizers, list(model.named_parameters()))

    def scheduler(self, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler | None:
        """Build the learning-rate schedule, which is stepped once a step; None for a constant rate."""
        if self._user is not None:
            return self._user.scheduler(optimizer) if hasattr(self._user, "scheduler") else None
        if self._schedule is None or self._job.schedule is None:
            return None
        return self._schedule(optimizer, **self._job.schedule.arguments)  # type: ignore[no-any-return]

    def _step(self, model: nn.Module, batch: Batch) -> Iterator[tuple[str, Tensor]]:
        inputs, targets = batch
        yield from self._user.step(model, (self.prepare(inputs), self._targets(targets)))

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

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The mean loss of a batch as it arrives, a scalar."""
        inputs, targets = batch[0], self._targets(batch[1])
        prepared = self.prepare(inputs)
        self._remember(model, inputs, prepared)
        if hasattr(self._user, "loss"):
            return self._user.loss(model, (prepared, targets))  # type: ignore[no-any-return]
        return self._loss(model(prepared), targets)

    def metrics(self, model: nn.Module, batch: Batch) -> Sums:
        """Metric's name -> (sum over the samples, number of samples) for a batch as it arrives."""
        inputs, targets = batch[0], self._targets(batch[1])
        prepared = self._remembered(model, inputs)
        if hasattr(self._user, "metrics"):
            return self._user.metrics(model, (prepared, targets))  # type: ignore[no-any-return]
        if not self._metrics:
            return {}
        outputs = model(prepared)
        return {name: metric(outputs, targets) for name, metric in self._metrics.items()}

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


def loss_function(job: Job) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss that a job names, as a function of (outputs, targets) with its arguments filled in.

    Raises:
        ReferenceProblem: there is no such loss.
    """
    name = job.loss.name if job.loss else DEFAULT_LOSS
    arguments: Mapping[str, Any] = job.loss.arguments if job.loss else {}
    found = named_loss(name)
    if inspect.isclass(found):
        return cast("Callable[[Tensor, Tensor], Tensor]", found(**arguments))

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        if name in _BROADCASTING and outputs.shape != targets.shape:
            shapes = f"outputs of shape {tuple(outputs.shape)} and targets of shape {tuple(targets.shape)}"
            raise ValueError(f"{name} of {shapes} would pair every output with every target: make the shapes equal")
        return found(outputs, targets, **arguments)  # type: ignore[no-any-return]

    loss.__wrapped__ = found  # type: ignore[attr-defined]  # whose code it is
    return loss
