"""Types of the values in a spec: names, numbers, ranges, seeds, times; and the base of its sections."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    PlainValidator,
    Strict,
    Tag,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError, PydanticKnownError

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._+=-]*$"
LARGEST_SEED = 2**31 - 1  # NumPy takes 32 bits, and virtual worker r uses seed + 1 + r
LARGEST_COUNT = 10**9
MOST_JOBS = 100_000  # of a spec, with all that its grids and samples make
MOST_BLOCKS = 1000  # of one drawn list
MOST_DRAWN = 2_000_000  # values of all samples of a spec
MOST_DEVICES = 1_000_000
MOST_RANKS = 65_536  # of one run: those of the largest machines
MOST_DIGITS = 1000  # of a whole number; Python writes none with more than 4300
MOST_PROFILED = 48  # FLEET, MLSys'20, 6.1: at most 48 batches, of which the last 20 are timed
MOST_TIMED = 20
AUTO = "auto"
NAMED_KEYS = ("model", "task", "optimizer", "schedule", "loss")
"""Keys of a job for which a name alone may stand."""
MOST_FOLDS = 1000
MARKS = ("[number]", "[apart]", "[first]", "[these]", "[named]", "[said]")
"""pydantic's marks of the forms that a seed, a job's subset of samples, and a metric take."""
ONE_SEED, SEEDS_APART, FIRST_SAMPLES, THESE_SAMPLES, METRIC_NAME, METRIC_SAID = MARKS


def refusal(rule: str, mend: str = "", suggestion: str | None = None) -> PydanticCustomError:
    """The error that a value is refused with: the rule that it breaks, what to do, and the nearest valid value."""
    told = {"rule": rule, "mend": mend} | ({} if suggestion is None else {"suggestion": suggestion})
    return PydanticCustomError("refused", "{rule}", told)


def _finite(value: Any) -> Any:
    """NaN and infinity have no JSON, and NaN is not even equal to itself."""
    if isinstance(value, float) and not math.isfinite(value):
        raise refusal(
            f"holds {value!r}, which is not a finite number", "leave the argument out, or give a large number"
        )
    for child in value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ():
        _finite(child)
    return value


def _pair(value: Any) -> Any:
    """One number stands for the range that holds it alone."""
    return [value, value] if isinstance(value, int) and not isinstance(value, bool) else value


def _ascending(value: tuple[float, float]) -> tuple[float, float]:
    if value[0] > value[1]:
        rule = "is a range [low, high], and low must not be above high"
        raise refusal(rule, suggestion=f"[{value[1]!r}, {value[0]!r}]")
    return value


def numbers_of(value: Any) -> Any:
    """Return what `0-3,6` or a number alone stands for: [0, 1, 2, 3, 6]; what is written otherwise stays as it is."""
    if not isinstance(value, str):
        return [value] if type(value) is int else value
    numbers: list[int] = []
    for part in value.replace(" ", "").split(","):
        found = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?", part)
        if found is None or int(found[2] or found[1]) < int(found[1]):
            rule = f"holds {repr(part)}, which is neither a number nor a range of them"
            raise refusal(rule, "write numbers and ranges with commas between, such as 0-3,6")
        numbers += range(int(found[1]), int(found[2] or found[1]) + 1)
        if len(numbers) > MOST_DEVICES:
            raise refusal(f"names more than {MOST_DEVICES} devices")
    return numbers


def _once_each(samples: tuple[int, ...]) -> tuple[int, ...]:
    """The indices in ascending order."""
    ordered = tuple(sorted(samples))
    twice = next((first for first, second in zip(ordered, ordered[1:]) if first == second), None)
    if twice is not None:
        raise refusal(f"names sample {twice} more than once", "name each sample once")
    return ordered


def _switched(value: Any) -> Any:
    """A switch that has kinds of being on."""
    return ("kernels" if value else None) if isinstance(value, bool) else value


Name = Annotated[str, Strict(), Field(pattern=NAME_PATTERN, max_length=128)]
Text = Annotated[str, Strict(), Field(min_length=1)]
Integer = Annotated[int, Strict(), Field(ge=-(2**53), le=2**53)]
Count = Annotated[int, Strict(), Field(ge=1, le=LARGEST_COUNT)]
CountOrNone = Annotated[int, Strict(), Field(ge=0, le=LARGEST_COUNT)]
Device = Annotated[int, Strict(), Field(ge=0, lt=MOST_DEVICES)]
Ranks = Annotated[int, Strict(), Field(ge=1, le=MOST_RANKS)]
Workers = Annotated[int, Strict(), Field(ge=1, le=65_536)]
WorkersOrAuto = Annotated[
    Workers,
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 65_536}, {"const": AUTO, "type": "string"}]}
    ),
]
"""A job keeps `auto` until a number is chosen; see `Job.auto_workers`."""
Jobs = Annotated[int, Strict(), Field(ge=1, le=MOST_JOBS)]
Trained = Annotated[int, Strict(), Field(ge=1, le=MOST_PROFILED)]
Timed = Annotated[int, Strict(), Field(ge=1, le=MOST_TIMED)]
Seed = Annotated[int, Strict(), Field(ge=0, le=LARGEST_SEED)]
Real = Annotated[float, Strict(), Field(allow_inf_nan=False)]
Positive = Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]
Arguments = Annotated[Mapping[Text, JsonValue], AfterValidator(_finite)]
Compiled = Annotated[Literal["kernels", "graphs"] | None, BeforeValidator(_switched)]
Folds = Annotated[int, Strict(), Field(ge=2, le=MOST_FOLDS)]
FoldNumber = Annotated[int, Strict(), Field(ge=0, lt=MOST_FOLDS)]
Bagged = Annotated[float, Strict(), Field(gt=0, le=1, allow_inf_nan=False)]
SampleIndex = Annotated[int, Strict(), Field(ge=0, le=LARGEST_COUNT)]
IntegerRange = Annotated[tuple[Integer, Integer], AfterValidator(_ascending)]
BlockCount = Annotated[int, Strict(), Field(ge=1, le=MOST_BLOCKS)]
BlockRange = Annotated[tuple[BlockCount, BlockCount], AfterValidator(_ascending), BeforeValidator(_pair)]
CountRange = Annotated[tuple[Count, Count], AfterValidator(_ascending), BeforeValidator(_pair)]
RealRange = Annotated[tuple[Real, Real], AfterValidator(_ascending)]
CountingRange = Annotated[tuple[Count, Count], AfterValidator(_ascending)]
PositiveRange = Annotated[tuple[Positive, Positive], AfterValidator(_ascending)]
Plain = Annotated[JsonValue, AfterValidator(_finite)]


class Section(BaseModel):
    """A part of a spec: frozen, and without any key that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


def written_alone(key: str) -> Callable[[Any], Any]:
    """Return what lets a text stand for a section of which it is the value of `key`."""
    return lambda value: {key: value} if isinstance(value, str) else value


class Seeds(Section):
    """Seeds apart: networks with the same order share their samples, and differ in their weights."""

    weights: Seed = Field(
        description="Seeds the network's weights, and what it draws as it trains, such as dropout.", examples=[7]
    )
    order: Seed = Field(description="Seeds the order of the samples and their augmentation.", examples=[0])


def _form_of_seed(value: Any) -> str:
    return SEEDS_APART if isinstance(value, (Mapping, Seeds)) else ONE_SEED


SeedOrSeeds = Annotated[
    Annotated[Seed, Tag(ONE_SEED)] | Annotated[Seeds, Tag(SEEDS_APART)], Discriminator(_form_of_seed)
]


def _form_of_samples(value: Any) -> str:
    return THESE_SAMPLES if isinstance(value, (list, tuple)) else FIRST_SAMPLES


SomeSamples = Annotated[
    Annotated[Count, Tag(FIRST_SAMPLES)]
    | Annotated[tuple[SampleIndex, ...], Field(min_length=1), AfterValidator(_once_each), Tag(THESE_SAMPLES)],
    Discriminator(_form_of_samples),
]
"""How many of a data set's first samples, or the indices of some, ascending."""


class Named(Section):
    """Something with a name, and the arguments to make it with; ``name`` alone may be written for ``{name: name}``."""

    name: Text = Field(
        description="A built-in or torch name, or `module:Name` of a class or function that can be imported from "
        "the folder of the spec, the current folder or the environment.",
        examples=["trainers.zoo:MLP"],
    )
    arguments: Arguments = Field(
        default_factory=dict, description="The keyword arguments with which it is called.", examples=[{"widths": [128]}]
    )

    _name_alone = model_validator(mode="before")(written_alone("name"))

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.arguments.items())})"


EXAMPLE = "2026-12-01T08:00"


def timestamp(text: str) -> str:
    """A time with its offset from UTC, which is the local one of this process where the text says none.

    Raises:
        ValueError: it is no time of ISO 8601, or a day alone.
    """
    written = text.strip()
    try:
        found = datetime.fromisoformat(written[:-1] + "+00:00" if written.endswith(("Z", "z")) else written)
        if ":" in written:
            return (found if found.tzinfo else found.astimezone()).isoformat()
    except (ValueError, OverflowError, OSError):
        pass
    raise ValueError(f"{text!r} is no time; write it as {EXAMPLE}, or {EXAMPLE}+01:00 with its offset from UTC")


def unix_seconds(text: str) -> float:
    """Seconds since 1970 of a text that `timestamp` gave."""
    return datetime.fromisoformat(text).timestamp()


def due(text: str) -> float | str:
    """Return what an option says of a deadline: seconds above 0, or a time as `timestamp` gives it.

    Raises:
        ValueError: neither.
    """
    try:
        seconds = float(text)
    except ValueError:
        return timestamp(text)
    if not 0 < seconds < math.inf:
        raise ValueError(f"{text} is no deadline; give seconds above 0, or a time such as {EXAMPLE}")
    return seconds


def _checked(value: Any) -> float | str:
    if isinstance(value, str):
        try:
            return timestamp(value)
        except ValueError:
            mend = f"write seconds as a number without quotes, or a time as {EXAMPLE}"
            raise refusal("must be a number of seconds, or a time", mend, EXAMPLE) from None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise PydanticKnownError("float_type")
    if isinstance(value, float) and not math.isfinite(value) or abs(value) > 2**1000:
        raise PydanticKnownError("finite_number")
    if not value > 0:
        raise PydanticKnownError("greater_than", {"gt": 0.0})
    return float(value)


Due = Annotated[
    float | str,
    PlainValidator(_checked),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}]}),
]
