"""The optimizer of a job, with groups of parameters, and its learning-rate schedule and warm-up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    Strict,
    model_serializer,
    model_validator,
)

from fleet.spec.values import Arguments, Count, Named, Positive, Section, Text, refusal

Patterns = Annotated[
    tuple[Text, ...], Field(min_length=1), BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
]


class ParameterGroup(Section):
    """Some of a network's parameters, with options of their own: any argument of the optimizer may be written here."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, JsonValue]

    match: Patterns = Field(
        description="Patterns of names of parameters, as `named_parameters` has them; `*` stands for anything. A "
        "parameter is in the first group that has a pattern for it.",
        examples=[["*.bias", "*norm*"]],
    )
    name: Text | None = Field(
        default=None,
        description="An optimizer for these parameters, as the optimizer's `name`; null: the optimizer's own, with the "
        "options that are written here, such as `weight_decay: 0`.",
        examples=["Muon"],
    )
    arguments: Arguments = Field(
        default_factory=dict, description="The keyword arguments of that optimizer.", examples=[{"lr": 0.02}]
    )

    @property
    def options(self) -> Mapping[str, Any]:
        """What it says beside these keys."""
        return self.__pydantic_extra__ or {}

    def takes(self, parameter: str) -> bool:
        """Return whether it has a pattern for a parameter's name."""
        return any(fnmatchcase(parameter, pattern) for pattern in self.match)

    @model_serializer(mode="wrap")
    def _short(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = serialize(self)
        return {key: value for key, value in values.items() if key not in ("name", "arguments") or value}

    @model_validator(mode="after")
    def _arguments_of_its_own(self) -> ParameterGroup:
        if self.arguments and self.name is None:
            rule = "arguments go with a name, and this group has none"
            raise refusal(rule, "write the options beside match, such as weight_decay: 0, or add a name")
        return self


class Optimizer(Named):
    """An optimizer; ``name`` alone may be written for ``{name: name}``."""

    name: Text | None = Field(  # type: ignore[assignment]
        default=None,
        description="A name in `torch.optim` or `module:Name`. Needed unless each of the `groups` has one.",
        examples=["AdamW"],
    )
    groups: tuple[ParameterGroup, ...] = Field(
        default=(),
        description="Groups of parameters, by the patterns of their names. Those in none have the optimizer's own "
        "arguments.",
        examples=[[{"match": ["*.bias", "*norm*"], "weight_decay": 0}]],
    )

    @model_validator(mode="before")
    @classmethod
    def _without_groups(cls, value: Any) -> Any:
        """What has a name and arguments alone is an optimizer, too."""
        return {"name": value.name, "arguments": value.arguments} if type(value) is Named else value

    @model_serializer(mode="wrap")
    def _short(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without what older specs did not have, where it is not asked for: their digests stay what they were."""
        values: dict[str, Any] = serialize(self)
        if not self.groups:
            values.pop("groups", None)
        return values

    @model_validator(mode="after")
    def _has_names(self) -> Optimizer:
        if self.name is None and (not self.groups or any(group.name is None for group in self.groups)):
            raise refusal("required key name is missing", "add `name: AdamW`, or give each of its groups one")
        if self.name is None and self.arguments:
            rule = "arguments go with a name, and this optimizer has none"
            raise refusal(rule, "write them into the groups, which have names")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The optimizers that it names, each once."""
        found = [self.name, *(group.name for group in self.groups)]
        return tuple(dict.fromkeys(name for name in found if name is not None))

    def __str__(self) -> str:
        told = super().__str__() if self.name is not None else ""
        grouped = [f"{group.name or self.name} for {', '.join(group.match)}" for group in self.groups]
        return "; ".join(filter(None, [told, *grouped]))

    def members(self, parameters: Sequence[str]) -> list[list[str]]:
        """The parameters of each group, in their order, and last those that are in none."""
        found: list[list[str]] = [[] for _ in range(len(self.groups) + 1)]
        for parameter in parameters:
            found[next((n for n, each in enumerate(self.groups) if each.takes(parameter)), -1)].append(parameter)
        return found


def unmatched(optimizer: Optimizer, parameters: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The number of each group with a pattern that is none of a parameter's, and the pattern."""
    for number, group in enumerate(optimizer.groups):
        for pattern in group.match:
            if not any(fnmatchcase(parameter, pattern) for parameter in parameters):
                yield number, pattern


def patterns(members: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return few patterns that are those of some of the names, and of no others."""
    others, found = set(names) - set(members), list[str]()
    for name in members:
        if any(fnmatchcase(name, pattern) for pattern in found):
            continue
        parts = name.split(".")
        wider = [f"*.{parts[-1]}", f"*{parts[-1]}", *(".".join(parts[:end]) + ".*" for end in range(1, len(parts)))]
        fits = (each for each in wider if not any(fnmatchcase(other, each) for other in others))
        found.append(next(fits, name))
    return found


class Schedule(Named):
    """How the learning rate changes: a class that torch has, or one's own, built with (optimizer, **arguments)."""

    each: Literal["step", "epoch"] = Field(
        default="step",
        description="`step`: the schedule is stepped once a step, and its arguments count steps; `epoch`: once an "
        "epoch, and they count epochs. `run` in the arguments stands for the length of the run in that unit, from the "
        "end of `warm_up` on.",
        examples=["epoch"],
    )


class WarmUp(Section):
    """A learning rate that rises along a line before the schedule begins; give one of the three lengths.

    As torch's SequentialLR of a LinearLR and the schedule; without a schedule the rate stays as it is then.
    """

    epochs: Positive | None = Field(
        default=None, description="Epochs; with a schedule that counts epochs, whole ones.", examples=[1]
    )
    steps: Count | None = Field(
        default=None, description="Steps; not with a schedule that counts epochs.", examples=[500]
    )
    fraction: Annotated[float, Strict(), Field(gt=0, lt=1, allow_inf_nan=False)] | None = Field(
        default=None, description="A part of the run.", examples=[0.05]
    )
    start_factor: Annotated[float, Strict(), Field(gt=0, le=1, allow_inf_nan=False)] = Field(
        default=0.01, description="What multiplies the learning rate at the first step.", examples=[0.1]
    )

    @model_validator(mode="after")
    def _one_length(self) -> WarmUp:
        given = [key for key in ("epochs", "steps", "fraction") if getattr(self, key) is not None]
        if len(given) != 1:
            rule = f"warm_up has {len(given)} of epochs, steps and fraction, and must have one"
            raise refusal(rule, "write one of them, such as warm_up: {epochs: 1}")
        return self


def check_unit(schedule: Schedule | None, warm_up: WarmUp | None) -> None:
    """Raise PydanticCustomError if a warm-up has a length that a schedule by epochs cannot count."""
    if schedule is None or schedule.each == "step" or warm_up is None:
        return
    if warm_up.steps is not None or (warm_up.epochs is not None and warm_up.epochs % 1):
        rule = "the schedule counts epochs, and the warm_up before it is no number of whole epochs"
        raise refusal(rule, "give warm_up whole epochs, or let the schedule count steps: each: step")
