"""What the keys of a sampled job are drawn from, and the draws.

A draw is a pure function of (seed, index of the job, path of the key), so that a further key, or a further job, changes
no other draw.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from fleet.spec.problem import nearest
from fleet.spec.values import BlockRange, IntegerRange, Plain, PositiveRange, RealRange, Section


class Blocks(Section):
    """A list of random length, each element of which is drawn by itself."""

    count: BlockRange = Field(
        description="The length, or the least and the greatest length; both are possible.", examples=[[3, 6]]
    )
    each: Distribution = Field(
        description="The distribution from which each element is drawn.", examples=[{"choice": [16, 32]}]
    )


class Distribution(Section):
    """What a key is drawn from: exactly one of these keys."""

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

    @model_validator(mode="after")
    def _exactly_one(self) -> Distribution:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            text = f"has {' and '.join(given)}" if given else "has none of them"
            raise PydanticCustomError(
                "not_one_distribution",
                "takes exactly one of {names}, and {text}",
                {
                    "names": ", ".join(type(self).model_fields),
                    "text": text,
                    "suggestion": nearest(given[0], given) if given else "choice",
                },
            )
        return self

    @property
    def most(self) -> int:
        """How many values one draw makes at most, with those inside lists."""
        if self.blocks is not None:
            return 1 + self.blocks.count[1] * self.blocks.each.most
        return 1 + sum(child.most for child in self.elements or ())


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
    if distribution.uniform is not None:
        low, high = distribution.uniform
        return min(low + (high - low) * part, high)
    if distribution.log_uniform is not None:
        low, high = distribution.log_uniform
        value = math.exp(math.log(low) + (math.log(high) - math.log(low)) * part)
        return min(max(float(f"{value:.12g}"), low), high)  # C libraries differ in the last digit of exp and log
    if distribution.integer is not None:
        return _integer(*distribution.integer, part)
    if distribution.blocks is not None:
        count = _integer(*distribution.blocks.count, part)
        return [draw(distribution.blocks.each, seed, index, path, *element, number) for number in range(count)]
    return [
        draw(child, seed, index, path, *element, number) for number, child in enumerate(distribution.elements or ())
    ]


def _integer(low: int, high: int, part: float) -> int:
    return min(low + int(part * (high - low + 1)), high)
