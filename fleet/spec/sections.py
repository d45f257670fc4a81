"""The sections of a spec beside its jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    StrictBool,
    Tag,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from fleet.spec.order import Order
from fleet.spec.values import (
    MOST_PROFILED,
    MOST_TIMED,
    Arguments,
    Count,
    Integer,
    Name,
    Named,
    NotNegative,
    Positive,
    Real,
    Section,
    Text,
    Timed,
    Trained,
    written_alone,
)


class Source(Section):
    """Where samples come from."""

    source: Text = Field(
        description="`module:Name` of a map-style data set of (input, target), or a built-in source: `idx`, `hdf5`, "
        "`numpy`, `image_folder`, `tar`, `tokens`, `parquet`, `arrow`, `zarr`, `netcdf`, `lmdb`.",
        examples=["examples.digits:Digits"],
    )
    arguments: Arguments = Field(
        default_factory=dict, description="The keyword arguments with which it is made.", examples=[{"train": True}]
    )

    subset: tuple[Integer, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=3,
        description="How many of its first samples to use, or [start, stop] or [start, stop, step] of a slice; null: "
        "all.",
        examples=[[1000]],
    )

    @field_validator("subset", mode="before")
    @classmethod
    def _number_alone(cls, value: Any) -> Any:
        return [value] if type(value) is int else value

    _source_alone = model_validator(mode="before")(written_alone("source"))


class Transform(Named):
    """One step of augmentation, written ``{name: {arguments}}`` or ``name``."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and len(value) == 1 and "name" not in value:
            ((name, arguments),) = value.items()
            return {"name": name, "arguments": {} if arguments is None else arguments}
        return value

    @property
    def step(self) -> dict[str, dict[str, Any]]:
        """``{name: arguments}``, as ``preprocess.transforms.transform.build_transforms`` takes it."""
        return {self.name: dict(self.arguments)}

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        return self.step


class Normalise(Section):
    """What is taken away from each channel of an input, and what it is then divided by.

    Images are scaled to 0..1 before.
    """

    mean: tuple[Real, ...] = Field(
        min_length=1, description="One value a channel, or one for all.", examples=[[0.1307]]
    )
    std: tuple[Positive, ...] = Field(
        min_length=1, description="One value above 0 a channel, or one for all.", examples=[[0.3081]]
    )
    dtype: Literal["float32", "float16", "bfloat16"] = Field(
        default="float32",
        description="The dtype that the network gets; all is computed in float32 and rounded once.",
        examples=["bfloat16"],
    )

    @model_serializer(mode="wrap")
    def _without_default(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Left out where it is float32, so that the digest of a spec without it stays what it was."""
        values: dict[str, Any] = serialize(self)
        if self.dtype == "float32":
            values.pop("dtype", None)
        return values

    @model_validator(mode="after")
    def _same_length(self) -> Normalise:
        if len(self.mean) != len(self.std):
            raise PydanticCustomError(
                "lengths_differ",
                "mean has {mean} values and std has {std}: both need one a channel",
                {"mean": len(self.mean), "std": len(self.std), "mend": "give mean and std the same number of values"},
            )
        return self


_COLLATING = ("collate", "sample_bytes")


class Data(Section):
    """One data set: its training and held-out samples, and what preprocessors and trainers do to each of them."""

    train: Source = Field(description="The samples to train on.", examples=[{"source": "examples.digits:Digits"}])
    held_out: Source | None = Field(
        default=None,
        description="The samples to evaluate on after each epoch; null: none.",
        examples=[{"source": "examples.digits:Digits"}],
    )
    transforms: tuple[Transform, ...] = Field(
        default=(),
        description="What preprocessors do to each training sample, in this order.",
        examples=[[{"random_crop": {"size": 28}}]],
    )
    held_out_transforms: tuple[Transform, ...] = Field(
        default=(), description="What preprocessors do to each held-out sample.", examples=[[]]
    )
    normalise: Normalise | None = Field(
        default=None,
        description="How the trainer normalises inputs, on its device; null: images of bytes are scaled to 0..1, all "
        "else stays as it is.",
        examples=[{"mean": [0.1307], "std": [0.3081]}],
    )
    collate: Named | None = Field(
        default=None,
        description="What makes a batch of samples of any shape: `pad`, or `module:Name` of a function of a list of "
        "samples, or of a class whose instances are such functions; null: samples have one shape.",
        examples=["pad"],
    )
    sample_bytes: Count | None = Field(
        default=None,
        description="With `collate`, the most bytes that a sample takes; null: all samples are read once to find out.",
        examples=[4096],
    )
    on_corrupt: Literal["raise", "skip"] = Field(
        default="raise",
        description="What happens when a sample cannot be read or transformed: `raise` names it and ends the "
        "training on these data, `skip` takes another sample of the network's part in its place and writes that down. "
        "All others stay the same.",
        examples=["skip"],
    )
    corrupt_limit: Count = Field(
        default=100,
        description="How many different samples a run may skip, all its sessions together; one more ends the training "
        "on these data.",
        examples=[100],
    )

    store: bool | None = Field(
        default=None,
        description="Whether samples may be kept as they are before the first transform that draws, see "
        "`resources.store`. null: where that is worth it, and the source is not one's own; true: of one's own source, "
        "too, whose reading then draws nothing; false: never, and finished ones are not kept either.",
        examples=[True],
    )

    order: Order = Field(
        default_factory=Order, description="How training samples are shuffled.", examples=[{"shuffle": "blocks"}]
    )

    @model_serializer(mode="wrap")
    def _without_later(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without what older specs did not have, where it is not asked for: their digests stay what they were."""
        values: dict[str, Any] = serialize(self)
        if self.order.is_usual:
            values.pop("order", None)
        elif self.order.weights is not None:
            values["order"] = {"weights": self.order.weights}
        else:
            values["order"].pop("weights", None)
        return {key: value for key, value in values.items() if value is not None or key not in _COLLATING}


class Determinism(Section):
    """What results do not depend on (EasyScale, SC'23, 3.3); one level for all jobs, as it holds for processes."""

    level: Literal["D0", "D1", "D2"] = Field(
        default="D1",
        description="`D0`: bits repeat on the same devices with the same history. `D1`: bits repeat on any number of "
        "devices, however often the job is moved and restarted. `D2`: they repeat on devices of different kinds, too; "
        "kernels are then limited to those that all kinds have.",
        examples=["D2"],
    )
    instruction_set: Literal["avx2", "sse4"] = Field(
        default="avx2",
        description="The instruction set to which `D2` limits CPU kernels. `sse4` is slower, and serves where some "
        "machines have no AVX2.",
        examples=["sse4"],
    )

    matmul: Literal["ieee", "tf32"] = Field(
        default="ieee",
        description="In what GPUs multiply matrices of float32: `ieee`, or `tf32`, which is faster on NVIDIA's, keeps "
        "10 bits of each factor's mantissa and repeats all the same. The default is torch's; CPUs have no choice.",
        examples=["tf32"],
    )
    convolutions: Literal["tf32", "ieee"] = Field(
        default="tf32",
        description="The same for convolutions and recurrent layers, as cuDNN computes them. The default is torch's.",
        examples=["ieee"],
    )

    _level_alone = model_validator(mode="before")(written_alone("level"))

    @property
    def float32(self) -> dict[str, str]:
        """`matmul` and `convolutions`, as `trainers.Float32` takes them."""
        return {"matmul": self.matmul, "convolutions": self.convolutions}

    @property
    def chosen_float32(self) -> dict[str, str]:
        """What of it is not torch's default."""
        return {name: value for name, value in self.float32.items() if value != type(self).model_fields[name].default}

    @property
    def pinned_to(self) -> str | None:
        """The instruction set that processes must be started with; None below D2."""
        return self.instruction_set if self.level == "D2" else None


class Policy(Section):
    """Who gets which devices, and when."""

    name: Text = Field(
        default="flotilla",
        description="The policy: `flotilla`, `local`, `homogeneous`, `baseline` ..., or your own as `module:Name`.",
        examples=["flotilla"],
    )
    parameters: Arguments = Field(
        default_factory=dict, description="The policy's own parameters.", examples=[{"alpha": 0.8, "delta": "12%"}]
    )
    restart: NotNegative = Field(
        default=1.0,
        description="Seconds that a job is assumed to need from getting devices to its first step there, as long as no "
        "group of the run took longer; promises of deadlines include them.",
        examples=[20],
    )
    margin: NotNegative = Field(
        default=1.0,
        description="Seconds that `deadline` and `goodput` leave before a deadline that they promise, in case plans, "
        "messages or steps are late.",
        examples=[5],
    )
    worth: Positive | None = Field(
        default=None,
        description="What an hour of a device on which jobs train fastest is worth, in the unit of `resources.prices`: "
        "kinds of device that cost more for what they do are left alone while they do; null: whatever they cost, they "
        "are used.",
        examples=[2.5],
    )

    _name_alone = model_validator(mode="before")(written_alone("name"))


class Profile(Section):
    """How training rates are measured (FLEET, MLSys'20, 6.1)."""

    when: Literal["before", "training"] = Field(
        default="training",
        description="When the rates of jobs that no file has are measured: `before` the first job trains, or in "
        "`training`, by their first steps. Jobs with a deadline, or whose batch the policy chooses, and jobs that stay "
        "on the kind of device on which they begin where there are several, are measured before in any case.",
        examples=["before"],
    )
    batches: Trained = Field(default=MOST_PROFILED, description="Batches trained for one measurement.", examples=[48])
    timed: Timed = Field(
        default=MOST_TIMED,
        description="How many of them, the last ones, are timed; not given: 20, or all if they are fewer.",
        examples=[20],
    )
    file: Text | None = Field(
        default=None,
        description="A file of rates to read instead of measuring; null: measure.",
        examples=["rates.json"],
    )

    @model_validator(mode="before")
    @classmethod
    def _timed_within(cls, value: Any) -> Any:
        batches = value.get("batches") if isinstance(value, Mapping) else None
        if type(batches) is int and 1 <= batches < MOST_TIMED and "timed" not in value:
            return {**value, "timed": batches}
        return value

    @model_validator(mode="after")
    def _timed_are_trained(self) -> Profile:
        if self.timed > self.batches:
            raise PydanticCustomError(
                "more_timed_than_trained",
                "timed is {timed}, more than the {batches} of batches",
                {"timed": self.timed, "batches": self.batches, "mend": f"set timed to at most {self.batches}"},
            )
        return self


def _rates_form(value: Any) -> Literal["file", "table"]:
    return "table" if isinstance(value, Mapping) else "file"


def _device_count(key: Any) -> Any:
    """JSON has only text as keys."""
    return int(key) if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 10 else key


RatesFile = Annotated[Text, Tag("file")]
RatesTable = Annotated[Mapping[Name, Mapping[Count, Positive]], Tag("table")]


class Rehearse(Section):
    """A run whose training is replaced by waiting at known rates."""

    rates: Annotated[RatesFile | RatesTable, Discriminator(_rates_form)] | None = Field(
        default=None,
        description="Samples per second by number of devices: a file, or a table of job, then devices; null: the "
        "rates of `profile`.",
        examples=[{"mlp-1": {1: 900.0, 2: 1700.0}}],
    )
    speeds: Mapping[Name, Positive] = Field(
        default_factory=dict,
        description="How fast each kind of `resources.kinds` is, in multiples of `rates`; 1 where nothing is said.",
        examples=[{"slow": 0.5}],
    )
    batches: Mapping[Name, Mapping[Count, Positive]] = Field(
        default_factory=dict,
        description="Samples per second on one device by job, then global batch, for jobs whose batch the policy "
        "chooses; a step of a batch between two of them takes as long as lies between, beyond them as long as its "
        "samples. Without any, all batches are as fast.",
        examples=[{"mlp-1": {32: 900.0, 512: 2600.0}}],
    )
    learn: StrictBool = Field(
        default=False,
        description="Let the run begin without knowing `rates`, as one does that nobody has profiled: it guesses "
        "them from operation counts, and learns them as it trains.",
        examples=[True],
    )
    preprocessors: Mapping[Count, Positive] = Field(
        default_factory=dict,
        description="Samples per second of a data set that so many preprocessors make together; between these numbers "
        "they make what lies between. Without any, samples are never late.",
        examples=[{1: 500.0, 4: 1900.0}],
    )
    time_scale: Positive = Field(
        default=1.0,
        description="Seconds that a rehearsal takes for one second of a real run: 0.1 is ten times as fast.",
        examples=[0.1],
    )

    @field_validator("preprocessors", mode="before")
    @classmethod
    def _numbers(cls, value: Any) -> Any:
        return {_device_count(key): rate for key, rate in value.items()} if isinstance(value, Mapping) else value

    @field_validator("rates", "batches", mode="before")
    @classmethod
    def _counts(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {
            job: {_device_count(count): rate for count, rate in table.items()} if isinstance(table, Mapping) else table
            for job, table in value.items()
        }
