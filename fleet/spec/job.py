"""A job: one network to train, and the keys that say how."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    Strict,
    StrictBool,
    WithJsonSchema,
    field_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from fleet.spec.metrics import JobMetrics, declare_alone
from fleet.spec.optimizer import Optimizer, Schedule, WarmUp, check_unit
from fleet.spec.values import (
    AUTO,
    EXAMPLE,
    LARGEST_COUNT,
    Bagged,
    Compiled,
    Count,
    CountRange,
    Due,
    FoldNumber,
    Folds,
    Integer,
    Name,
    Named,
    NotNegative,
    Positive,
    Real,
    Section,
    SeedOrSeeds,
    Seeds,
    SomeSamples,
    Text,
    WorkersOrAuto,
    refusal,
)


class Stop(Section):
    """When a job is done: at the first of these conditions, looked at after each epoch."""

    epochs: Count = Field(description="The largest number of epochs to train, 1 or more.", examples=[8])
    target: Mapping[Text, Real] = Field(
        default_factory=dict,
        description="Metrics and the values that all of them must reach for the job to be done: at least the value "
        "where the metric declares that more is better, at most the value where less is.",
        examples=[{"accuracy": 0.985}],
    )
    patience: Count | None = Field(
        default=None,
        description="The job is done after so many epochs in which `monitor` did not improve; null: no limit.",
        examples=[3],
    )
    minimum_improvement: NotNegative = Field(
        default=0.0,
        description="The least change of `monitor` that counts as improvement, in the metric's unit.",
        examples=[0.001],
    )
    monitor: Text | None = Field(
        default=None,
        description="The metric that `patience` watches; null: the first one of `target`, otherwise `test_loss`.",
        examples=["accuracy"],
    )

    @property
    def monitored(self) -> str:
        """The metric that patience watches."""
        return self.monitor or next(iter(self.target), "test_loss")


class ServiceAgreement(Section):
    """A promise of devices. Windows follow each other from when the job is there and its rates are known."""

    devices: Positive = Field(
        description="Devices that the job has in the mean of a window: 0.5 is one for half of the time, or two for a "
        "quarter of it. At most `virtual_workers`.",
        examples=[0.5],
    )
    window: Annotated[float, Strict(), Field(ge=1, allow_inf_nan=False)] = Field(
        default=600.0, description="The length of a window, seconds.", examples=[600]
    )


class ChangingBatch(Section):
    """Batches that a policy may choose, and what the learning rate does then. The virtual workers stay as many."""

    range: CountRange = Field(
        description="The smallest and largest global batch (samples of all virtual workers).", examples=[[64, 1024]]
    )
    change: Literal["epochs", "start"] = Field(
        default="epochs",
        description="`epochs`: the batch may change at the end of each epoch; `start`: it is chosen when the job first "
        "starts, and stays.",
        examples=["epochs"],
    )
    learning_rate: Literal["linear", "square_root", "keep"] = Field(
        description="What multiplies the learning rate when the batch is n times the job's own, virtual_workers x "
        "batch_size: n, its square root, or 1. The schedule counts steps of the job's own batch.",
        examples=["square_root"],
    )
    growth: Annotated[float, Strict(), Field(ge=1.25, allow_inf_nan=False)] | None = Field(
        default=None,
        description="By how many times, up or down, the batch changes at the end of one epoch at most, from the job's "
        "own batch on; the next epochs bring the rest. null: any change is made at once.",
        examples=[2],
    )
    warm_up: NotNegative = Field(
        default=0.0,
        description="Epochs in which the learning rate comes to its new value, along a line, after each change.",
        examples=[1],
    )

    @model_validator(mode="after")
    def _grows_while_it_trains(self) -> ChangingBatch:
        if self.growth is not None and self.change == "start":
            rule = "growth bounds what changes at the end of an epoch, and with change: start nothing does"
            raise refusal(rule, "take growth away, or set change to epochs")
        return self


LARGEST = "largest"
_MOST = "most"
_STAND_IN = 32  # the default of `batch_size`


@dataclass(frozen=True)
class LargestBatch:
    """A request for the largest batch that fits (FLEET, MLSys'20, section 6.1).

    Attributes:
        most: samples of a virtual worker that are never exceeded; None: only the devices, the data and the rings limit.
    """

    most: int | None = None

    @classmethod
    def of(cls, value: Any) -> LargestBatch | None:
        """Read a `batch_size`; None if it is a number."""
        if value == LARGEST:
            return cls()
        if isinstance(value, Mapping) and set(value) == {_MOST}:
            most = value[_MOST]
            return cls(most) if type(most) is int and 1 <= most <= LARGEST_COUNT else None
        return None

    @property
    def stand_in(self) -> int:
        """A batch size until one is chosen."""
        return _STAND_IN if self.most is None else min(_STAND_IN, self.most)

    @property
    def written(self) -> str | dict[str, int]:
        """Return the request as a spec writes it."""
        return LARGEST if self.most is None else {_MOST: self.most}


def _number(value: Any) -> Any:
    """Refuse what is neither a number nor a request."""
    if isinstance(value, str | Mapping):
        rule = "must be a whole number, largest, or {most: N} with a whole number of 1 or more"
        raise refusal(rule, "write samples of one virtual worker, `largest`, or {most: 4096}")
    return value


SizeOrLargest = Annotated[
    Count,
    BeforeValidator(_number),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": LARGEST_COUNT},
                {"const": LARGEST, "type": "string"},
                {"const": "{most: N}"},
            ]
        }
    ),
]
"""A job keeps its request until a number is chosen; see `Job.largest_batch`."""


STEP_OPTIONS = ("accumulate", "autocast", "clip_norm", "clip_value", "compile")
SUBSET_KEYS = ("subset", "folds", "fold", "bag")


class Job(Section):
    """One network to train. Its weights depend on these keys and its data alone, never on the machine."""

    name: Name = Field(
        description="The job's name, unique in the ensemble; its folder of checkpoints has it, too.", examples=["mlp-1"]
    )
    model: Named | None = Field(
        default=None,
        description="The network, a `torch.nn.Module`. Needed unless `task` is given.",
        examples=[{"name": "trainers.zoo:MLP"}],
    )
    memory_format: Literal["channels_last", "channels_last_3d"] | None = Field(
        default=None,
        description="How the model's weights lie in memory, as `Module.to(memory_format=...)` lays them; null: as the "
        "model makes them. Convolutions are often faster in `channels_last`, with other last bits.",
        examples=["channels_last"],
    )
    task: Named | None = Field(
        default=None,
        description="A task class in place of `model`, `optimizer`, `schedule`, `loss` and `metrics`. The job's "
        "`batch_size` and `seed` count, not the class's own. Without `data`, the task's own data set is used.",
        examples=["mytask:Task"],
    )
    data: Text | None = Field(
        default=None, description="The data set, a key of `data`. Needed with `model`.", examples=["digits"]
    )
    subset: SomeSamples | None = Field(
        default=None,
        description="The job's own part of its data set's training samples: how many of the first, or a list of their "
        "indices, from 0; null: all. Jobs with different parts read one stream.",
        examples=[1000],
    )
    folds: Folds | None = Field(
        default=None,
        description="Cross-validation: one job for each fold, NAME-fold-0 and so on. Each is evaluated on its fold "
        "and trains on the other samples. The seed of the order says which sample is in which fold; the data set has "
        "no `held_out`.",
        examples=[5],
    )
    fold: FoldNumber | None = Field(
        default=None,
        description="The only one of the `folds` that is trained, from 0; null: each has a job of its own.",
        examples=[0],
    )
    bag: Bagged | None = Field(
        default=None,
        description="Train on so large a part of the samples, drawn without replacement (with `folds`: of those that "
        "are not held out). The seed of the weights says which; null: all.",
        examples=[0.8],
    )
    optimizer: Optimizer | None = Field(
        default=None,
        description="A name in `torch.optim` or `module:Name`, or several, each for some of the parameters. Needed "
        "with `model`.",
        examples=[{"name": "SGD", "arguments": {"lr": 0.05, "momentum": 0.9}}],
    )
    schedule: Schedule | None = Field(
        default=None,
        description="A name in `torch.optim.lr_scheduler` or `module:Name`, stepped once a step, or with `each: epoch` "
        "once an epoch; null: a constant learning rate.",
        examples=[{"name": "CosineAnnealingLR", "each": "epoch", "arguments": {"T_max": "run"}}],
    )
    warm_up: WarmUp | None = Field(
        default=None,
        description="How long the learning rate rises before the schedule begins: so many `epochs`, `steps` or a "
        "`fraction` of the run; null: it does not.",
        examples=[{"epochs": 1}],
    )
    loss: Named | None = Field(
        default=None,
        description="A loss in `torch.nn.functional`, or `module:Name` of a function of (outputs, targets) or of a "
        "class whose instances are such functions; null: `cross_entropy`.",
        examples=["cross_entropy"],
    )
    metrics: JobMetrics = Field(
        default=(),
        description="Built-in names such as `accuracy`, `f1`, `auroc`, `mean_absolute_error`; `module:Name` of a class "
        "of torchmetrics, or of a function of (outputs, targets) that gives (sum, count); or `{name, of, better, "
        "arguments}`. With `task`, entries of names and `better` alone. `loss` and `test_loss` are always measured.",
        examples=[["accuracy"]],
    )
    seed: SeedOrSeeds = Field(
        default=0,
        description="Seeds weights, order and augmentation; or one seed for `weights` and another one for `order` and "
        "augmentation. Not given: the ensemble's `seed`, in the place of either too.",
        examples=[{"weights": 7, "order": 0}],
    )
    virtual_workers: WorkersOrAuto = Field(
        default=1,
        description="Logical data-parallel workers, fixed for the job; it can use at most as many devices. `auto`: "
        "chosen when the run first starts, as few as make it hardly longer than more would, and fixed from then on; "
        "not together with `batch` or `batch_range`.",
        examples=[2],
    )
    batch_size: SizeOrLargest = Field(
        default=32,
        description="Samples of one virtual worker in a step. `largest`: as many as fit on every kind of device, found "
        "out when the run first starts and fixed from then on; `{most: 4096}`: so, but at most so many. The learning "
        "rate stays; not together with `batch`, `batch_range` or `virtual_workers: auto`.",
        examples=[32],
    )
    drop_last: StrictBool | None = Field(
        default=None,
        description="true: each virtual worker leaves its last batch of an epoch out where that has fewer than "
        "`batch_size` samples, as `DataLoader(drop_last=True)` does. null: as the task class's `drop_last` says, else "
        "false. Not together with `batch`.",
        examples=[True],
    )
    evaluation_batch_size: Count | None = Field(
        default=None,
        description="Held-out samples that the network takes at once; more are faster where networks are small, fewer "
        "need less memory. null: as many as a step, `virtual_workers` x `batch_size`.",
        examples=[500],
    )
    accumulate: Count | None = Field(
        default=None,
        description="Parts into which a virtual worker's batch is cut; the worker computes them one after the other "
        "and adds their gradients up, which needs less memory. null: the whole batch at once.",
        examples=[4],
    )
    autocast: Literal["bfloat16"] | None = Field(
        default=None,
        description="`bfloat16`: operations that torch's autocast deems safe compute in it; weights and gradients stay "
        "as they are. null: the precision of the model.",
        examples=["bfloat16"],
    )
    clip_norm: Positive | None = Field(
        default=None,
        description="The largest 2-norm of all gradients together, as `clip_grad_norm_` holds it; null: no limit.",
        examples=[1.0],
    )
    clip_value: Positive | None = Field(
        default=None,
        description="The largest magnitude of an element of a gradient; null: no limit. Not together with `clip_norm`.",
        examples=[0.5],
    )
    compile: Compiled = Field(
        default=None,
        description="true or `kernels`: torch.compile makes the model's kernels, when a batch of a new shape first "
        "comes; `graphs`: GPUs also replay them as graphs. null or false: torch's own kernels. Not with `D2`.",
        examples=[True],
    )
    stop: Stop = Field(description="When the job is done.", examples=[{"epochs": 8}])
    deadline: Due | None = Field(
        default=None,
        description="When the job should be done, for policies that know deadlines: seconds after its arrival, those "
        f"between two starts of the run included; or a time such as `{EXAMPLE}` or `{EXAMPLE}+01:00`, without an "
        "offset in the time zone of the process that reads it.",
        examples=[3600],
    )
    soft: StrictBool = Field(
        default=False,
        description="Whether the job is still worth something after its deadline: one that cannot be promised is then "
        "trained on devices that others leave, and not dropped; for policies that drop jobs, such as `elasticflow`.",
        examples=[True],
    )
    user: Name | None = Field(
        default=None,
        description="For whom the job runs, for policies that give each user a quota, such as `elasticflow`.",
        examples=["ada"],
    )
    priority: Integer = Field(
        default=0, description="A higher priority is more urgent; for policies that know priorities.", examples=[1]
    )
    guaranteed: StrictBool = Field(
        default=False,
        description="Whether the job takes devices from jobs that are not guaranteed, at once; for policies that know "
        "such jobs, such as `easyscale`.",
        examples=[True],
    )
    minimum_devices: Count = Field(
        default=1,
        description="The fewest devices that the job trains on; it waits until it can have so many. At most "
        "`virtual_workers`; for policies that keep to it, such as `easyscale`.",
        examples=[2],
    )
    service_level: ServiceAgreement | None = Field(
        default=None,
        description="Devices that the job is promised in the mean of each window of time; for policies that hold such "
        "promises, such as `easyscale`. Not together with `guaranteed`.",
        examples=[{"devices": 0.5, "window": 600}],
    )
    batch_range: CountRange | None = Field(
        default=None,
        description="The smallest and largest global batch (samples of all virtual workers) that a policy may choose, "
        "once, when the job first starts; the learning rate stays. null: the batch is fixed.",
        examples=[[32, 512]],
    )
    batch: ChangingBatch | None = Field(
        default=None,
        description="Batches that a policy may choose, again and again, and what the learning rate does then; not "
        "together with `batch_range`.",
        examples=[{"range": [64, 1024], "change": "epochs", "learning_rate": "square_root", "warm_up": 1}],
    )
    arrival: NotNegative = Field(
        default=0.0, description="Seconds after the start of the run at which the job may begin.", examples=[60]
    )

    _auto: bool = PrivateAttr(default=False)
    _largest: LargestBatch | None = PrivateAttr(default=None)

    @model_validator(mode="wrap")
    @classmethod
    def _take_choices(cls, values: Any, handler: ModelWrapValidatorHandler[Job]) -> Job:
        """Let numbers stand in for what is yet to be chosen."""
        if not isinstance(values, Mapping):
            return handler(values)
        auto, largest = values.get("virtual_workers") == AUTO, LargestBatch.of(values.get("batch_size"))
        _refuse_two_choices(values, auto, largest is not None)
        least = values.get("minimum_devices")
        workers = max(1, least) if type(least) is int else 1
        stand_ins = {"virtual_workers": workers} if auto else {}
        stand_ins |= {"batch_size": largest.stand_in} if largest else {}
        job = handler({**values, **stand_ins})
        if stand_ins:
            job._auto, job._largest = auto, largest
        return job

    @field_serializer("virtual_workers")
    def _write_auto(self, count: int) -> int | str:
        return AUTO if self._auto else count

    @field_serializer("batch_size")
    def _write_largest(self, size: int) -> int | str | dict[str, int]:
        return self._largest.written if self._largest else size

    @property
    def auto_workers(self) -> bool:
        """Whether `virtual_workers` are yet to be chosen; the fewest that there may be stand in for them."""
        return self._auto

    @property
    def largest_batch(self) -> LargestBatch | None:
        """What is asked of a `batch_size` that is yet to be chosen, for which a number stands in; None: it is there."""
        return self._largest

    def with_workers(self, count: int) -> Job:
        """Return the job with so many virtual workers."""
        job = self.model_copy(update={"virtual_workers": count})
        job._auto = False
        return job

    def with_batch_size(self, size: int) -> Job:
        """Return the job with so many samples of each virtual worker."""
        job = self.model_copy(update={"batch_size": size})
        job._largest = None
        return job

    @property
    def weights_seed(self) -> int:
        """What seeds the network's weights, and what it draws as it trains."""
        return self.seed.weights if isinstance(self.seed, Seeds) else self.seed

    @property
    def order_seed(self) -> int:
        """What seeds the order of its samples and their augmentation."""
        return self.seed.order if isinstance(self.seed, Seeds) else self.seed

    @property
    def global_batch(self) -> int:
        """Samples of all virtual workers in a step."""
        return self.virtual_workers * self.batch_size

    @property
    def batches(self) -> tuple[int, int] | None:
        """The smallest and largest global batch that a policy may choose; None: the batch is fixed."""
        return self.batch_range if self.batch is None else self.batch.range

    @model_validator(mode="after")
    def _keys_fit(self) -> Job:
        for key, rule, mend in incomplete({name: getattr(self, name) for name in type(self).model_fields}):
            raise PydanticCustomError("incomplete_job", "{key}: {rule}", {"key": key, "rule": rule, "mend": mend})
        if self.clip_norm is not None and self.clip_value is not None:
            rule = "clip_norm and clip_value exclude each other"
            raise refusal(rule, "take one of them away, or clip in a task's before_step(model)")
        check_unit(self.schedule, self.warm_up)
        if self.drop_last and self.batch is not None:
            rule = "drop_last and a batch that changes exclude each other: what is left out would change, too"
            raise refusal(rule, "take one of them away")
        if self.fold is not None and (self.folds is None or self.fold >= self.folds):
            folds = "null" if self.folds is None else self.folds
            mend = "add `folds`, or take `fold` away" if self.folds is None else f"set fold to at most {self.folds - 1}"
            raise refusal(f"there is no fold {self.fold}: folds is {folds}, and they are counted from 0", mend)
        self._check_batches()
        self._check_devices()
        return self

    def _check_batches(self) -> None:
        name = "batch_range" if self.batch is None else "batch.range"
        if self.batches and not self.batches[0] <= self.global_batch <= self.batches[1]:
            rule = f"{name} must hold virtual_workers x batch_size = {self.global_batch}"
            raise refusal(rule, f"widen {name} or change batch_size")
        if self.batch is not None and self.batch_range is not None:
            mend = "take batch_range away; `batch` with change: start and learning_rate: keep is the same"
            raise refusal("batch and batch_range exclude each other", mend)

    def _check_devices(self) -> None:
        least, most, promise = self.minimum_devices, self.virtual_workers, self.service_level
        of_workers = f"more than the {most} of virtual_workers, each of which has one at most"
        if least > most:
            raise refusal(f"minimum_devices is {least}, {of_workers}", f"set minimum_devices to at most {most}")
        if promise is not None and promise.devices > most:
            rule = f"service_level promises {promise.devices:g} devices, {of_workers}"
            raise refusal(rule, f"set service_level.devices to at most {most}")
        if promise is not None and self.guaranteed:
            rule = "a guaranteed job has all its devices at once, so a service_level promises it nothing more"
            raise refusal(rule, "take one of the two away")


def _refuse_two_choices(values: Mapping[str, Any], auto: bool, largest: bool) -> None:
    """Refuse a job whose batch more than one thing would choose."""
    if (auto or largest) and any(values.get(key) is not None for key in ("batch", "batch_range")):
        key, word = ("virtual_workers", "auto") if auto else ("batch_size", "largest")
        rule = f"{key}: {word} and a batch that the policy chooses exclude each other"
        raise refusal(rule, f"give {key} a number; `fleet plan` without the range says which would do")
    if auto and largest:
        rule = "virtual_workers: auto and batch_size: largest exclude each other"
        raise refusal(rule, "give one of them a number: how many workers are enough depends on the batch")


NEEDED_WITH_MODEL = ("data", "optimizer")
NOT_WITH_TASK = ("model", "memory_format", "optimizer", "schedule", "warm_up", "loss", "metrics", *STEP_OPTIONS)


def incomplete(job: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(key, rule, mend) for each key that a job lacks, or has although its task says the same."""
    if job.get("model") is None and job.get("task") is None:
        yield "model", "a job needs a model or a task", "add `model: module:Name`"
    if job.get("task") is not None:
        for key in NOT_WITH_TASK:
            if job.get(key) and not (key == "metrics" and declare_alone(job[key])):
                yield key, f"not together with task: the task has its own {key}", f"take away `{key}` or `task`"
        return
    for key in NEEDED_WITH_MODEL:
        if job.get(key) is None:
            yield key, f"required key {key} is missing", f"add `{key}: ...` to the job or to defaults"


def data_key(job: Job) -> str:
    """The name under which a job's samples are made: its entry in `data`, or its own task's data set."""
    if job.data is not None:
        return job.data
    assert job.task is not None
    text = json.dumps(job.task.model_dump(mode="json"), sort_keys=True)
    return f"{job.task.name}#{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"


def is_task_data(key: str) -> bool:
    """Return whether a data set is a task's own, of which the spec's `data` says nothing."""
    return "#" in key
