"""The section of a search that tells which trials train on."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, Strict, StrictBool, model_validator
from pydantic_core import PydanticCustomError

from fleet.spec.problem import nearest
from fleet.spec.values import Count, Section, written_alone

_RULES = Literal["none", "halving", "hyperband", "median", "population"]
_KEYS_OF_RULES = {
    "none": (),
    "halving": ("eta", "rungs", "confidence", "synchronous"),
    "hyperband": ("eta", "rungs"),
    "median": ("grace", "least"),
    "population": ("interval", "quantile", "resample", "perturb", "synchronous"),
}


def known_name(value: Any, names: tuple[str, ...], what: str) -> Any:
    """Let a name of `names` pass, and a `module:Name`; others are refused, with the nearest of `names`."""
    if isinstance(value, str) and value not in names and ":" not in value:
        rule = f"{value!r} is not a {what}; there are {', '.join(names)}"
        suggestion = nearest(value, names)
        context = {"rule": rule, "mend": "write one of these"} | ({"suggestion": suggestion} if suggestion else {})
        raise PydanticCustomError(f"unknown_{what.replace(' ', '_')}", "{rule}", context)
    return value


def _rising(rungs: tuple[int, ...]) -> tuple[int, ...]:
    if any(second <= first for first, second in zip(rungs, rungs[1:])):
        raise PydanticCustomError(
            "not_rising",
            "rungs are numbers of epochs, each more than the one before",
            {"suggestion": str(sorted(set(rungs)))},
        )
    return rungs


Rule = Annotated[_RULES, BeforeValidator(lambda value: known_name(value, get_args(_RULES), "stopping rule"))]
Eta = Annotated[int, Strict(), Field(ge=2, le=1000)]
Half = Annotated[float, Field(gt=0, le=0.5, allow_inf_nan=False)]
Confidence = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Factors = tuple[Annotated[float, Field(gt=0, lt=1)], Annotated[float, Field(gt=1, lt=1000)]]
Rungs = Annotated[tuple[Count, ...], Field(min_length=1), AfterValidator(_rising)]


class Stopping(Section):
    """Which trials of a search train on, and which do not; ``name`` alone may be written for ``{name: name}``."""

    name: Rule = Field(
        description="`none`: each trial trains all epochs. `halving`: of those that are known at a rung one in `eta` "
        "goes on (ASHA). `hyperband`: the same in several brackets, which begin at higher and higher rungs. `median`: "
        "a trial stops at an epoch where its best value is worse than the median of the others' means until then. "
        "`population`: after each `interval` the worst trials go on from the best ones' weights, with values near "
        "theirs (PBT).",
        examples=["halving"],
    )
    eta: Eta = Field(default=3, description="Of how many trials one goes on from a rung.", examples=[3])
    rungs: Rungs | None = Field(
        default=None,
        description="The epochs after which trials are compared, the last of them the epochs of a whole trial; null: "
        "1, `eta`, `eta` x `eta` and so on, up to the job's `stop.epochs`.",
        examples=[[1, 3, 9]],
    )
    confidence: Confidence = Field(
        default=0.99,
        description="With `halving` of so many `trials`, and while there are new ones, a trial goes on from a rung "
        "only if it is this likely to be among the best 1/`eta` of all that will come there. 0: if it is one of the "
        "best of those that are known, as in ASHA. With `synchronous` all are known.",
        examples=[0.0],
    )
    synchronous: StrictBool = Field(
        default=False,
        description="Whether all trials must be at a rung, or have trained an interval, before any goes on from it.",
        examples=[True],
    )
    grace: Count = Field(default=1, description="With `median`, no trial stops before so many epochs.", examples=[2])
    least: Count = Field(
        default=5,
        description="With `median`, a trial stops only where so many others are known at its epoch.",
        examples=[5],
    )
    interval: Count = Field(
        default=1, description="With `population`, epochs between two comparisons of a trial.", examples=[2]
    )
    quantile: Half = Field(
        default=0.25,
        description="With `population`, which part of the trials counts as the worst, and as the best.",
        examples=[0.25],
    )
    resample: Probability = Field(
        default=0.25,
        description="With `population`, the probability with which a value is drawn anew; else it is perturbed.",
        examples=[0.25],
    )
    perturb: Factors = Field(
        default=(0.8, 1.25),
        description="With `population`, the factors by which a number changes, down and up.",
        examples=[[0.8, 1.25]],
    )

    _name_alone = model_validator(mode="before")(written_alone("name"))

    @property
    def is_confident(self) -> bool:
        """Whether a trial goes on only if it is likely to be among the best of all."""
        return self.name == "halving" and not self.synchronous and self.confidence > 0

    @model_validator(mode="after")
    def _own_keys(self) -> Stopping:
        own = _KEYS_OF_RULES[self.name]
        foreign = sorted(self.model_fields_set - {"name", *own})
        changed = [key for key in foreign if getattr(self, key) != type(self).model_fields[key].default]
        if changed:
            has = ", ".join(own) or "no keys but its name"
            raise PydanticCustomError(
                "foreign_key",
                "{name} has no {key}; it has {has}",
                {"name": self.name, "key": changed[0], "has": has, "mend": f"take {changed[0]} away"},
            )
        return self

    def levels(self, epochs: int) -> tuple[int, ...]:
        """The rungs of trials that train at most so many epochs, the last of them all epochs."""
        if self.rungs is not None:
            return self.rungs
        levels = [1]
        while levels[-1] * self.eta < epochs:
            levels.append(levels[-1] * self.eta)
        return (*(level for level in levels if level < epochs), epochs)
