"""A search space as a flat list of parameters, some of which are there only where others say so; values in it."""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fleet.spec import SearchSpec
from fleet.spec.distributions import (
    Distribution,
    applies,
    as_written,
    conditional,
    in_order,
    log_integer,
    place_of,
    set_paths,
)
from fleet.spec.problem import nearest


def seed_at_path(seed: int, trial: int, purpose: str) -> int:
    """A seed of 32 bits by seed path (seed of the search, trial, purpose)."""
    text = json.dumps([seed, trial, purpose])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")


@dataclass(frozen=True)
class Parameter:
    """One number that is chosen.

    Attributes:
        name: the path of its key, with `#count` for the length of drawn blocks and `#2` for their third element.
        kind: `real`, `log` (a real number whose logarithm is spread), `whole`, `log_whole`, or `index` (of one of
            several values).
        low: the least.
        high: the greatest.
        levels: gives each value there is by its number where they have steps, see `Distribution.level`.
    """

    name: str
    kind: Literal["real", "log", "whole", "log_whole", "index"]
    low: float
    high: float
    levels: Distribution | None = field(default=None, hash=False)

    @property
    def is_number(self) -> bool:
        """Whether its values have an order."""
        return self.kind != "index"

    @property
    def is_whole(self) -> bool:
        """Whether its values are whole numbers that mean something."""
        return self.kind in ("whole", "log_whole")

    def at(self, part: float) -> float | int:
        """The value at a part of the range; of equal shares of it where values are whole.

        Args:
            part: 0 to 1.
        """
        if self.levels is not None:
            return self._level(int(part * self._count))
        if self.kind == "log_whole":
            return log_integer(int(self.low), int(self.high), part)
        if self.kind in ("whole", "index"):
            return min(int(self.low) + int(part * (self.high - self.low + 1)), int(self.high))
        if self.kind == "log":
            return self.rounded(math.exp(math.log(self.low) + (math.log(self.high) - math.log(self.low)) * part))
        return self.rounded(self.low + (self.high - self.low) * part)

    def part(self, value: float) -> float:
        """Where in the range a value lies, 0 to 1; of whole numbers and steps the middle of their share."""
        if self.levels is not None:
            return (self._place(value) + 0.5) / self._count
        if self.kind == "log_whole":
            least = math.log(self.low - 0.5)
            return (math.log(value) - least) / (math.log(self.high + 0.5) - least)
        if self.kind in ("whole", "index"):
            return (value - self.low + 0.5) / (self.high - self.low + 1)
        if self.low == self.high:
            return 0.5
        if self.kind == "log":
            return (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)

    def rounded(self, value: float) -> float:
        """The value to 12 digits, as C libraries differ in the last one, within the range; the nearest of steps."""
        if self.levels is not None:
            return self._level(self._place(value))
        return min(max(float(f"{value:.12g}"), self.low), self.high)

    @property
    def step(self) -> float | None:
        """How far values lie apart; None: they may lie anywhere."""
        return None if self.levels is None else self.levels.step

    @property
    def _count(self) -> int:
        return (self.levels.levels if self.levels is not None else None) or 1

    def _level(self, number: int) -> float | int:
        assert self.levels is not None, "asked of parameters with steps alone"
        return self.levels.level(min(max(number, 0), self._count - 1))

    def _place(self, value: float) -> int:
        return round((value - self.low) / (self.step or 1.0))


Answer = Callable[[Parameter], Any]


def values_of(over: Mapping[str, Distribution], answer: Answer) -> dict[str, Any]:
    """The values of a trial, each parameter that there is asked for in order."""
    found: dict[str, Any] = {}
    for path in in_order(over):
        chosen = applies(over[path], found)
        if chosen is not None:
            found[path] = _value(chosen[0], path + chosen[1], answer)
    return as_written(over, found)


def _value(what: Distribution, name: str, answer: Answer) -> Any:
    parameter = _scalar(what, name)
    if parameter is not None:
        chosen = answer(parameter)
        if what.choice is not None:
            return copy.deepcopy(what.choice[int(chosen)])
        return int(chosen) if parameter.is_whole else parameter.rounded(float(chosen))
    if what.blocks is not None:
        count = int(answer(_count(what, name)))
        return [_value(what.blocks.each, f"{name}#{number}", answer) for number in range(count)]
    return [_value(child, f"{name}#{number}", answer) for number, child in enumerate(what.elements or ())]


def answers_of(over: Mapping[str, Distribution], values: Mapping[str, Any]) -> dict[Parameter, Any]:
    """What was answered for a trial with these values."""
    return dict(
        pair
        for path, what in over.items()
        if path in values and (chosen := applies(what, values)) is not None
        for pair in _answers(chosen[0], path + chosen[1], values[path])
    )


def _answers(what: Distribution, name: str, value: Any) -> Iterator[tuple[Parameter, Any]]:
    parameter = _scalar(what, name)
    if parameter is not None:
        yield parameter, place_of(what.choice, value) if what.choice is not None else value
    elif what.blocks is not None:
        yield _count(what, name), len(value)
        for number, child in enumerate(value):
            yield from _answers(what.blocks.each, f"{name}#{number}", child)
    else:
        for number, (part, child) in enumerate(zip(what.elements or (), value)):
            yield from _answers(part, f"{name}#{number}", child)


def parameters(over: Mapping[str, Distribution]) -> list[tuple[Parameter, bool]]:
    """All parameters that there may be, and whether each of them always is."""
    return [
        found
        for path, what in over.items()
        for number, case in enumerate(what.cases or (what,))
        for found in _parameters(case, f"{path}@{number}" if what.cases else path, not conditional(what))
    ]


def _parameters(what: Distribution, name: str, always: bool) -> Iterator[tuple[Parameter, bool]]:
    parameter = _scalar(what, name)
    if parameter is not None:
        yield parameter, always
    elif what.blocks is not None:
        yield _count(what, name), always
        for number in range(what.blocks.count[1]):
            yield from _parameters(what.blocks.each, f"{name}#{number}", always and number < what.blocks.count[0])
    else:
        for number, child in enumerate(what.elements or ()):
            yield from _parameters(child, f"{name}#{number}", always)


def _scalar(what: Distribution, name: str) -> Parameter | None:
    """The parameter that the distribution is; None for lists."""
    if what.choice is not None:
        return Parameter(name, "index", 0, len(what.choice) - 1)
    if what.levels is not None:
        kind: Literal["whole", "real"] = "real" if what.integer is None else "whole"
        return Parameter(name, kind, what.level(0), what.level(what.levels - 1), what)
    if what.log_integer is not None:
        return Parameter(name, "log_whole", *what.log_integer)
    if what.uniform is not None:
        return Parameter(name, "real", *what.uniform)
    if what.log_uniform is not None:
        return Parameter(name, "log", *what.log_uniform)
    return None if what.integer is None else Parameter(name, "whole", *what.integer)


def _count(what: Distribution, name: str) -> Parameter:
    assert what.blocks is not None, "only blocks have a length"
    return Parameter(f"{name}#count", "whole", *what.blocks.count)


@dataclass(frozen=True)
class TrialColumns:
    """What a search adds to tables of jobs.

    Attributes:
        over: dotted path -> the distribution of a trial's value.
        metric: the first that the search goes by.
    """

    over: Mapping[str, Distribution]
    metric: str

    @classmethod
    def of(cls, asked: SearchSpec) -> TrialColumns:
        """Take the columns of a spec's search."""
        return cls(asked.over, asked.metrics[0])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns; see `value_columns`."""
        return value_columns(self.over)

    def row(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a trial has in these columns; see `value_row`."""
        return value_row(self.over, values)


def value_columns(over: Mapping[str, Distribution]) -> tuple[str, ...]:
    """The names of all parameters that there may be.

    A parameter is called as its path in `over`; of lists `#count` is the length, where that is drawn, and `#2` the
    third element.
    """
    return tuple(parameter.name for parameter, _ in parameters(over))


def value_row(over: Mapping[str, Distribution], values: Mapping[str, Any]) -> dict[str, Any]:
    """Parameter -> its value, of those that the trial has.

    Args:
        over: dotted path -> its distribution.
        values: dotted path -> value, of one trial.
    """
    return dict(
        pair
        for path, what in over.items()
        if path in values and (chosen := applies(what, values)) is not None
        for pair in _cells(chosen[0], path + chosen[1], values[path])
    )


def _cells(what: Distribution, name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A list that is drawn in parts is taken apart; what a person's own sampler gives in its place is not."""
    if not isinstance(value, (list, tuple)) or (what.blocks is None and what.elements is None):
        yield name, value
        return
    if what.blocks is not None:
        yield f"{name}#count", len(value)
    parts = [what.blocks.each] * len(value) if what.blocks is not None else list(what.elements or ())
    for number, (part, child) in enumerate(zip(parts, value)):
        yield from _cells(part, f"{name}#{number}", child)


def check_values(over: Mapping[str, Distribution], values: Mapping[str, Any]) -> None:
    """Check that a search could have drawn these values.

    Raises:
        ValueError: it could not; with all that is wrong.
    """
    wanted = set_paths(over, values)
    wrong = [f"{path} has no value" for path in over if path in wanted and path not in values]
    wrong += [_unknown(path, over) for path in values if path not in over]
    wrong += [f"{path} has a value, and its condition does not hold" for path in values if path in over.keys() - wanted]
    wrong += [text for path in over if path in values and path in wanted and (text := _misfit(path, over, values))]
    if wrong:
        raise ValueError("; ".join(wrong))


def check_one_metric(metrics: Sequence[str]) -> None:
    """Check that people can train trials of a search themselves: they tell one value of each.

    Raises:
        ValueError: it has several metrics.
    """
    if len(metrics) > 1:
        raise ValueError(
            f"the search goes by {', '.join(metrics)}, and a trial of one's own has one value; "
            f"search by one metric, such as {metrics[0]}, in another run"
        )


def _unknown(path: str, over: Mapping[str, Distribution]) -> str:
    meant = nearest(path, list(over))
    more = f"did you mean {meant}?" if meant else f"it varies {', '.join(over)}"
    return f"the search does not vary {path}; {more}"


def _misfit(path: str, over: Mapping[str, Distribution], values: Mapping[str, Any]) -> str:
    """What is wrong with a value; "" if it fits."""
    chosen, value = applies(over[path], values), values[path]
    what = over[path] if chosen is None else chosen[0].model_copy(update={"when": None})
    drawn = what.model_dump(mode="json", exclude_none=True)
    told = f"{path} is {value!r}, which {drawn} does not give"
    try:
        answers = answers_of({path: what}, {path: value})
        inside = all(
            not isinstance(answer, bool) and parameter.low <= answer <= parameter.high
            for parameter, answer in answers.items()
        )
        same = values_of({path: what}, lambda parameter: answers[parameter])[path] == value
    except (ValueError, TypeError, KeyError, IndexError):
        return told
    return "" if inside and same else told
