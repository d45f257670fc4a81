"""Distributions of the values in samples and searches: the draws, conditions between keys, grids, and ends of ranges.

A draw is a pure function of (seed, index of the job, path of the key), so that a further key, or a further job, changes
no other draw.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from fleet.spec.problem import listed, nearest, shown
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
    refusal,
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
                meant = f"{{{key}: [{told[0]}, {told[1]}], step: {told[2]}}}"
                raise refusal(f"{key} is a range [low, high], and has three numbers", f"write {meant}", meant)
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
            suggestion = nearest(given[0], given) if given else "choice"
            raise refusal(f"takes exactly one of {', '.join(names)}, and {text}", suggestion=suggestion)
        self._check_step(given[0])
        for value in self.choice or ():
            _check_plain(value)
        inner = [*(self.elements or ()), *([self.blocks.each] if self.blocks else ())]
        if any(child.when or child.cases for child in inner):
            raise refusal("a part of a list has no condition of its own", "write `when` beside the list")
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
        raise refusal(rule, mend)

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
                inner = f"{{{key}: {list(ends)}}}"
                rule = (
                    f"the values of a choice are taken as they are, and one of them holds {inner}, which is not drawn"
                )
                case = f"{{{key}: {list(ends)}, when: {{optimizer.name: SGD}}}}"
                mend = (
                    "vary the parts by themselves: `optimizer.name: {choice: [SGD, Adam]}`, and "
                    f"`optimizer.arguments.lr: {{cases: [{case}, ...]}}`"
                )
                raise refusal(rule, mend)
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
    """Return which of several values one is; true, 1 and 1.0 are three.

    Raises:
        ValueError: it is none of them.
    """
    same = (number for number, one in enumerate(choice) if type(one) is type(value) and one == value)
    found = next(same, None)
    return choice.index(value) if found is None else found


Over = Mapping[str, Distribution]


def in_order(over: Over) -> list[str]:
    """The paths, each after those that its conditions name; otherwise as they are written."""
    found: dict[str, None] = {}

    def add(path: str) -> None:
        for other in conditions_of(over[path]):
            if other in over and other not in found and other != path:
                add(other)
        found[path] = None

    for path in over:
        add(path)
    return list(found)


def conditions_of(what: Distribution) -> set[str]:
    """The paths that the conditions of a distribution name."""
    return {path for one in (what, *(what.cases or ())) for path in one.when or ()}


def applies(what: Distribution, values: Mapping[str, Any]) -> tuple[Distribution, str] | None:
    """From what a key is drawn beside these values, and a mark of the case; None: it is not set."""
    if not _holds(what, values):
        return None
    for number, case in enumerate(what.cases or ()):
        if _holds(case, values):
            return case, f"@{number}"
    return None if what.cases else (what, "")


def _holds(what: Distribution, values: Mapping[str, Any]) -> bool:
    return all(
        path in values and any(_same(values[path], one) for one in accepted(what, path)) for path in what.when or ()
    )


def accepted(what: Distribution, path: str) -> list[Any]:
    """With which values of a path the condition holds."""
    told = (what.when or {})[path]
    return list(told) if isinstance(told, (list, tuple)) else [told]


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def drawn(over: Over, seed: int, index: int) -> dict[str, Any]:
    """A value of each key that is set, in the order in which they are written; see `draw`."""
    found: dict[str, Any] = {}
    for path in in_order(over):
        chosen = applies(over[path], found)
        if chosen is not None:
            found[path] = draw(chosen[0], seed, index, path + chosen[1])
    return as_written(over, found)


def as_written(over: Over, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values in the order in which their keys are written."""
    return {path: values[path] for path in over if path in values}


def set_paths(over: Over, values: Mapping[str, Any]) -> set[str]:
    """The paths that are set beside these values."""
    return {path for path, what in over.items() if applies(what, values) is not None}


def checked(over: Over) -> Over:
    """The distributions, once their conditions can hold.

    Raises:
        PydanticCustomError: one never can.
    """
    for path, what in over.items():
        for one in (what, *(what.cases or ())):
            for other in one.when or ():
                _check_condition(path, one, other, over)
    _check_circles(over)
    return over


def _check_condition(path: str, what: Distribution, other: str, over: Over) -> None:
    if other not in over or other == path:
        varied = [name for name in over if name != path]
        rule = f"{path} is set when {other} has a value, and {other} does not vary; what varies is "
        mend = f"vary {other} beside it, such as {{choice: [...]}}, or take the condition away"
        raise refusal(rule + (listed(varied) or "nothing else"), mend, nearest(other, varied))
    for value in accepted(what, other):
        if not any(_can_be(one, value) for one in over[other].cases or (over[other],)):
            choice = over[other].choice
            meant = nearest(value, [each for each in choice or () if isinstance(each, str)])
            mend = f"write {listed([shown(each, 40) for each in choice])}" if choice else "write a value of its range"
            raise refusal(f"{path} is set when {other} is {shown(value, 40)}, which it never is", mend, meant)


def _can_be(what: Distribution, value: Any) -> bool:
    if what.choice is not None:
        return any(_same(one, value) for one in what.choice)
    ends = what.integer or what.log_integer or what.uniform or what.log_uniform
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return ends is None or (number and ends[0] <= value <= ends[1])


def _check_circles(over: Over) -> None:
    """Raise where conditions go in a circle."""
    for path in over:
        seen, waiting = set[str](), [*conditions_of(over[path])]
        while waiting:
            other = waiting.pop()
            if other == path:
                rule = f"{path} is set by what is set by {path}: the conditions go in a circle"
                raise refusal(rule, "take one of them away")
            if other not in seen:
                seen.add(other)
                waiting += conditions_of(over[other])


class Enumerated:
    """All combinations of values that finitely many distributions have, by number; the last path varies fastest.

    Args:
        over: dotted path -> its distribution.
    """

    def __init__(self, over: Over) -> None:
        self._over, self._paths = dict(over), in_order(over)
        self._decides = {path for what in over.values() for path in conditions_of(what)}

    def count(self, place: int = 0, values: Mapping[str, Any] | None = None) -> int | None:
        """Return how many there are; None: any number."""
        known = values or {}
        result = 1
        for number in range(place, len(self._paths)):
            path = self._paths[number]
            chosen = applies(self._over[path], known)
            there = 1 if chosen is None else combinations(chosen[0])
            if there is None:
                return None
            if chosen is not None and path in self._decides:
                return self._sum(result, number, path, chosen[0], known)
            result *= there
        return result

    def _sum(self, before: int, place: int, path: str, what: Distribution, values: Mapping[str, Any]) -> int | None:
        total = 0
        for value in all_values(what):
            inner = self.count(place + 1, {**values, path: value})
            if inner is None:
                return None
            total += before * inner
        return total

    def nth(self, number: int) -> dict[str, Any]:
        """One of them.

        Raises:
            IndexError: there are not so many.
        """
        there = self.count()
        if there is None or number >= there:
            raise IndexError(f"the grid has {there} combinations, and none for trial {number}")
        found: dict[str, Any] = {}
        for place, path in enumerate(self._paths):
            chosen = applies(self._over[path], found)
            if chosen is None:
                continue
            for value in all_values(chosen[0]) if path in self._decides else ():
                inner = self.count(place + 1, {**found, path: value}) or 0
                if number < inner:
                    found[path] = value
                    break
                number -= inner
            if path not in self._decides:
                which, number = divmod(number, self.count(place + 1, found) or 1)
                found[path] = nth_value(chosen[0], which)
        return as_written(self._over, found)


def all_values(what: Distribution) -> Iterator[Any]:
    """All values of a distribution that has finitely many."""
    return (nth_value(what, number) for number in range(combinations(what) or 0))


def nth_value(what: Distribution, number: int) -> Any:
    """A value of a distribution by its number; shorter blocks come first."""
    if what.choice is not None:
        return what.choice[number]
    if what.levels is not None:
        return what.level(number)
    whole = what.integer or what.log_integer
    if whole is not None:
        return whole[0] + number
    if what.elements is not None:
        return _nth_of(what.elements, number)
    assert what.blocks is not None, "a grid has no real numbers"
    each, count = combinations(what.blocks.each) or 1, what.blocks.count[0]
    while number >= each**count:
        number -= each**count
        count += 1
    return _nth_of([what.blocks.each] * count, number)


def _nth_of(distributions: Iterable[Distribution], number: int) -> list[Any]:
    values = []
    for what in reversed(list(distributions)):
        number, inner = divmod(number, combinations(what) or 1)
        values.append(nth_value(what, inner))
    return values[::-1]


def combinations(what: Distribution) -> int | None:
    """Return how many values a distribution has, whatever its condition; None: any number."""
    if what.choice is not None:
        return len(what.choice)
    if what.levels is not None:
        return what.levels
    whole = what.integer or what.log_integer
    if whole is not None:
        return whole[1] - whole[0] + 1
    if what.blocks is not None:
        inner = combinations(what.blocks.each)
        low, high = what.blocks.count
        return None if inner is None else sum(inner**count for count in range(low, high + 1))
    if what.cases is not None:
        return _sum_of(map(combinations, what.cases))
    return _product(map(combinations, what.elements)) if what.elements is not None else None


def _sum_of(counts: Iterable[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def _product(counts: Iterable[int | None]) -> int | None:
    result = 1
    for count in counts:
        if count is None:
            return None
        result *= count
    return result


MOST_CORNERS = 64  # of one search


def corners(over: Mapping[str, Distribution]) -> list[dict[str, Any]]:
    """Values of trials: each value of a choice and both ends of a range come in one, the other paths at their first.

    What has a condition comes with values that let it hold. At most 64 of them.
    """
    found = [_with_ends(over, {})]
    for path, what in over.items():
        for number, case in enumerate(what.cases or (what,)):
            others = _not_forced(over, (what.cases or ())[:number])
            for value in _ends(case)[0 if conditional(what) else 1 :]:
                one = _with_ends(over, {**others, **_forced(over, what, case), path: value})
                chosen = applies(what, one)
                if one not in found and chosen is not None and chosen[0] is case:
                    found.append(one)
    return found[:MOST_CORNERS]


def conditional(what: Distribution) -> bool:
    """Return whether there are values of others with which it is not set, or is another one."""
    return bool(what.when or what.cases)


def _forced(over: Mapping[str, Distribution], *conditions: Distribution) -> dict[str, Any]:
    """Values of other paths with which conditions hold."""
    found: dict[str, Any] = {}
    for one in conditions:
        for path in one.when or ():
            found = {**_forced(over, over[path]), **found, path: accepted(one, path)[0]}
    return found


def _not_forced(over: Mapping[str, Distribution], cases: tuple[Distribution, ...]) -> dict[str, Any]:
    """Values of other paths with which these cases do not hold, as far as ends of ranges are such."""
    found: dict[str, Any] = {}
    for case in cases:
        for path in case.when or ():
            ends = [end for one in over[path].cases or (over[path],) for end in _ends(one)]
            other = next((end for end in ends if end not in accepted(case, path)), None)
            if other is not None and path not in found:
                found[path] = other
                break
    return found


def _with_ends(over: Mapping[str, Distribution], forced: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in in_order(over):
        chosen = applies(over[path], found)
        if chosen is not None:
            found[path] = forced[path] if path in forced else _ends(chosen[0])[0]
    return as_written(over, found)


def _ends(what: Distribution) -> list[Any]:
    if what.choice is not None:
        return list(what.choice)
    if what.blocks is not None:
        inner = _ends(what.blocks.each)
        return [[value] * count for count in sorted(set(what.blocks.count)) for value in inner]
    if what.elements is not None:
        parts = [_ends(child) for child in what.elements]
        return [[values[min(number, len(values) - 1)] for values in parts] for number in range(max(map(len, parts)))]
    if what.levels is not None:
        low, high = what.level(0), what.level(what.levels - 1)
    else:
        low, high = next(_ranges(what))
    return [low] if low == high else [low, high]


def _ranges(what: Distribution) -> Iterator[tuple[Any, Any]]:
    return (ends for ends in (what.uniform, what.log_uniform, what.integer, what.log_integer) if ends is not None)
