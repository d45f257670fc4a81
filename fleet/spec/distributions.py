"""What the keys of a sampled job are drawn from, and the draws.

A draw is a pure function of (seed, index of the job, path of the key), so that a further key, or a further job, changes
no other draw.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from fleet.spec.problem import nearest
from fleet.spec.values import (
    BlockRange,
    CountingRange,
    IntegerRange,
    Plain,
    Positive,
    PositiveRange,
    RealRange,
    Section,
    Text,
)

_BESIDE = ("step", "when")
"""Keys that stand beside one of the others."""


class Blocks(Section):
    """A list of random length, each element of which is drawn by itself."""

    count: BlockRange = Field(
        description="The length, or the least and the greatest length; both are possible.", examples=[[3, 6]]
    )
    each: Distribution = Field(
        description="The distribution from which each element is drawn.", examples=[{"choice": [16, 32]}]
    )


class Distribution(Section):
    """What a key is drawn from: exactly one of these keys, and beside it `step` and `when` where they are wanted."""

    choice: tuple[Plain, ...] | None = Field(
        default=None, min_length=1, description="One of these values, all equally likely.", examples=[[8, 16]]
    )
    uniform: RealRange | None = Field(default=None, description="A number in [low, high).", examples=[[0.0, 0.5]])
    log_uniform: PositiveRange | None = Field(
        default=None,
        description="A number in [low, high] whose logarithm is uniform, to 12 digits.",
        examples=[[0.001, 0.1]],
    )
    integer: IntegerRange | None = Field(
        default=None, description="A whole number in [low, high]; both ends are possible.", examples=[[1, 4]]
    )
    log_integer: CountingRange | None = Field(
        default=None,
        description="A whole number in [low, high], from 1 on, whose logarithm is uniform; `log_int` may be written.",
        examples=[[2, 1024]],
    )
    blocks: Blocks | None = Field(
        default=None,
        description="A list of random length: `count` and `each`.",
        examples=[{"count": [3, 6], "each": {"choice": [16, 32]}}],
    )
    elements: tuple[Distribution, ...] | None = Field(
        default=None,
        min_length=1,
        description="A list with one element drawn from each of these.",
        examples=[[{"integer": [2, 8]}]],
    )

    cases: tuple[Distribution, ...] | None = Field(
        default=None,
        min_length=1,
        description="Several distributions, each with `when`: the first whose condition holds is drawn from; without "
        "one the key is not set.",
        examples=[[{"uniform": [0.1, 1.0], "when": {"optimizer.name": "SGD"}}, {"uniform": [0.001, 0.1]}]],
    )
    step: Positive | None = Field(
        default=None,
        description="Beside `integer` or `uniform`: only low, low + step, low + 2 step ... up to high are drawn, and "
        "high too where it is one of these; null: all.",
        examples=[16],
    )
    when: Mapping[Text, Plain] | None = Field(
        default=None,
        description="Dotted path of another key that varies -> the value, or a list of the values, with which alone "
        "this key is set; null: always.",
        examples=[{"optimizer.name": "SGD"}],
    )

    @model_validator(mode="before")
    @classmethod
    def _short_word(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and "log_int" in value and "log_integer" not in value:
            return {"log_integer" if key == "log_int" else key: child for key, child in value.items()}
        return value

    @model_validator(mode="before")
    @classmethod
    def _step_apart(cls, value: Any) -> Any:
        """Three numbers are a range and a step, which is written beside it."""
        for key in ("integer", "uniform") if isinstance(value, Mapping) else ():
            told = value.get(key)
            if isinstance(told, (list, tuple)) and len(told) == 3:
                raise PydanticCustomError(
                    "step_inside",
                    "{key} is a range [low, high], and has three numbers",
                    {
                        "key": key,
                        "suggestion": f"{{{key}: [{told[0]}, {told[1]}], step: {told[2]}}}",
                        "mend": f"write {{{key}: [{told[0]}, {told[1]}], step: {told[2]}}}",
                    },
                )
        return value

    @model_serializer(mode="wrap")
    def _without_new_keys(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out those that older specs did not have, where they say nothing: digests stay what they were."""
        new = ("log_integer", "cases", *_BESIDE)
        return {key: value for key, value in serialize(self).items() if key not in new or value is not None}

    @model_validator(mode="after")
    def _exactly_one(self) -> Distribution:
        names = [name for name in type(self).model_fields if name not in _BESIDE]
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            text = f"has {' and '.join(given)}" if given else "has none of them"
            raise PydanticCustomError(
                "not_one_distribution",
                "takes exactly one of {names}, and {text}",
                {
                    "names": ", ".join(names),
                    "text": text,
                    "suggestion": nearest(given[0], given) if given else "choice",
                },
            )
        self._check_step(given[0])
        for value in self.choice or ():
            _check_plain(value)
        inner = [*(self.elements or ()), *([self.blocks.each] if self.blocks else ())]
        if any(child.when or child.cases for child in inner):
            rule = "a part of a list has no condition of its own"
            raise PydanticCustomError("inner_condition", rule, {"mend": "write `when` beside the list"})
        return self

    def _check_step(self, kind: str) -> None:
        if self.step is None:
            return
        low, high = (self.integer or self.uniform or (0, math.inf))[:2]
        if kind not in ("integer", "uniform"):
            rule, mend = f"step stands beside integer or uniform, and this is {kind}", "take step away"
            if kind.startswith("log_"):
                mend += ", or take `choice` with the values that are meant"
        elif kind == "integer" and self.step != int(self.step):
            rule, mend = f"step is {self.step:g}, between whole numbers", "write a whole number"
        elif self.step > high - low:
            rule = f"step is {self.step:g}, more than the whole range of {high - low:g}"
            mend = "write a smaller one, or take it away"
        else:
            return
        raise PydanticCustomError("step_of_distribution", "{rule}", {"rule": rule, "mend": mend})

    @property
    def levels(self) -> int | None:
        """How many values there are by `step`; None: it has none."""
        if self.step is None:
            return None
        low, high = self.integer or self.uniform or (0, 0)
        return int((Decimal(str(high)) - Decimal(str(low))) // Decimal(str(self.step))) + 1

    def level(self, number: int) -> float | int:
        """One of the values that there are by `step`, as people would write it."""
        low, _ = self.integer or self.uniform or (0, 0)
        value = Decimal(str(low)) + number * Decimal(str(self.step))
        return int(value) if self.integer is not None else float(value)

    @property
    def most(self) -> int:
        """How many values one draw makes at most, with those inside lists."""
        if self.blocks is not None:
            return 1 + self.blocks.count[1] * self.blocks.each.most
        if self.cases is not None:
            return max(child.most for child in self.cases)
        return 1 + sum(child.most for child in self.elements or ())


def _check_plain(value: Any) -> None:
    """Raise if a value of a choice holds what looks like a distribution: it would not be drawn from."""
    if isinstance(value, Mapping):
        for key in value.keys() & {"uniform", "log_uniform", "integer", "log_integer"} if len(value) == 1 else ():
            ends = value[key]
            if isinstance(ends, (list, tuple)) and len(ends) == 2 and all(type(end) in (int, float) for end in ends):
                raise PydanticCustomError(
                    "distribution_in_choice",
                    "the values of a choice are taken as they are, and one of them holds {inner}, which is not drawn",
                    {
                        "inner": f"{{{key}: {list(ends)}}}",
                        "mend": "vary the parts by themselves: `optimizer.name: {choice: [SGD, Adam]}`, and "
                        f"`optimizer.arguments.lr: {{cases: [{{{key}: {list(ends)}, when: {{optimizer.name: SGD}}}}, "
                        "...]}`",
                    },
                )
    for child in value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ():
        _check_plain(child)


Blocks.model_rebuild()


def fraction(seed: int, index: int, path: str, *element: int) -> float:
    """A number of [0, 1), uniform, that depends on these values alone.

    Args:
        seed: the sample's seed.
        index: the job's index in the sample.
        path: the dotted path of the key.
        element: where in a drawn list.
    """
    text = json.dumps([seed, index, path, *element])
    return (int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 11) / 2**53


def draw(distribution: Distribution, seed: int, index: int, path: str, *element: int) -> Any:
    """One value; see ``fraction`` for the arguments."""
    part = fraction(seed, index, path, *element)
    if distribution.choice is not None:
        return distribution.choice[int(part * len(distribution.choice))]
    if distribution.levels is not None:
        return distribution.level(int(part * distribution.levels))
    if distribution.uniform is not None:
        low, high = distribution.uniform
        return min(low + (high - low) * part, high)
    if distribution.log_uniform is not None:
        low, high = distribution.log_uniform
        value = math.exp(math.log(low) + (math.log(high) - math.log(low)) * part)
        return min(max(float(f"{value:.12g}"), low), high)  # C libraries differ in the last digit of exp and log
    if distribution.integer is not None:
        return _integer(*distribution.integer, part)
    if distribution.log_integer is not None:
        return log_integer(*distribution.log_integer, part)
    if distribution.blocks is not None:
        count = _integer(*distribution.blocks.count, part)
        return [draw(distribution.blocks.each, seed, index, path, *element, number) for number in range(count)]
    return [
        draw(child, seed, index, path, *element, number) for number, child in enumerate(distribution.elements or ())
    ]


def _integer(low: int, high: int, part: float) -> int:
    return min(low + int(part * (high - low + 1)), high)


def log_integer(low: int, high: int, part: float) -> int:
    """The whole number at a part of a range, by logarithms: each has the share of the numbers that round to it."""
    least, most = math.log(low - 0.5), math.log(high + 0.5)
    return min(max(round(float(f"{math.exp(least + (most - least) * part):.12g}")), low), high)


def place_of(choice: tuple[Any, ...], value: Any) -> int:
    """Which of several values one is; true, 1 and 1.0 are three.

    Raises:
        ValueError: it is none of them.
    """
    same = (number for number, one in enumerate(choice) if type(one) is type(value) and one == value)
    found = next(same, None)
    return choice.index(value) if found is None else found
