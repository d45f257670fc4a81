"""Sections of a spec on the run as a whole: determinism, policy, checkpoints, profile and rehearsal."""

from __future__ import annotations

from collections.abc import Mapping
from glob import escape
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, StrictBool, Tag, field_validator, model_validator

from fleet.spec.values import (
    MOST_PROFILED,
    MOST_TIMED,
    Arguments,
    Count,
    CountOrNone,
    Name,
    NotNegative,
    Positive,
    Section,
    Text,
    Timed,
    Trained,
    refusal,
    written_alone,
)


def part_name(path: Path, number: int, parts: int) -> Path:
    """Return where a part of the profile `path` is written: `rates.2-of-4.json` is one of `rates.json`."""
    return path.with_name(f"{path.stem}.{number}-of-{parts}{path.suffix}")


def profile_files(path: Path) -> list[Path]:
    """The profile at `path`, or else all the parts of it that are there; empty if there is neither."""
    if path.is_file():
        return [path]
    return sorted(path.parent.glob(f"{escape(path.stem)}.*-of-*{escape(path.suffix)}"))


class Checkpoints(Section):
    """How often a job is saved."""

    every: Count = Field(default=1, description="Epochs between two checkpoints of a job.", examples=[1])
    seconds: NotNegative = Field(
        default=2.0,
        description="Where epochs are short: no checkpoint is written while at most so many seconds of training "
        "would be lost without it. A job that is done, pauses or stops is saved in any case. 0: `every` alone counts.",
        examples=[10.0],
    )
    keep: CountOrNone = Field(
        default=2,
        description="How many of a job's newest checkpoints are kept. 0: one, as long as the job may go on or is done, "
        "and none of a trial that its search stops, but for the best trial so far.",
        examples=[2],
    )
    best: Text | None = Field(
        default=None,
        description="A metric of every job; the checkpoint of the epoch with its best value is kept, too: the highest "
        "or the lowest, as the metric declares, the earlier epoch of equal ones. null: only the newest checkpoints are "
        "kept.",
        examples=["accuracy"],
    )
    margin: NotNegative = Field(
        default=30.0,
        description="Seconds that remain after the last checkpoint until a scheduler ends the allocation; the measured "
        "time of checkpoints comes on top.",
        examples=[60.0],
    )


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
            rule = f"timed is {self.timed}, more than the {self.batches} of batches"
            raise refusal(rule, f"set timed to at most {self.batches}")
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
