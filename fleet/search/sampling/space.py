"""A search space as a flat list of parameters, some of which are there only where others say so."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fleet.spec.distributions import Distribution


@dataclass(frozen=True)
class Parameter:
    """One number that is chosen.

    Attributes:
        name: the path of its key, with `#count` for the length of drawn blocks and `#2` for their third element.
        kind: `real`, `log` (a real number whose logarithm is spread), `whole`, or `index` (of one of several values).
        low: the least.
        high: the greatest.
    """

    name: str
    kind: Literal["real", "log", "whole", "index"]
    low: float
    high: float

    @property
    def is_number(self) -> bool:
        """Whether its values have an order."""
        return self.kind != "index"

    def at(self, part: float) -> float | int:
        """The value at a part of the range; of equal shares of it where values are whole.

        Args:
            part: 0 to 1.
        """
        if self.kind in ("whole", "index"):
            return min(int(self.low) + int(part * (self.high - self.low + 1)), int(self.high))
        if self.kind == "log":
            return self.rounded(math.exp(math.log(self.low) + (math.log(self.high) - math.log(self.low)) * part))
        return self.rounded(self.low + (self.high - self.low) * part)

    def part(self, value: float) -> float:
        """Where in the range a value lies, 0 to 1; of whole numbers the middle of their share."""
        if self.kind in ("whole", "index"):
            return (value - self.low + 0.5) / (self.high - self.low + 1)
        if self.low == self.high:
            return 0.5
        if self.kind == "log":
            return (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return (value - self.low) / (self.high - self.low)

    def rounded(self, value: float) -> float:
        """The value to 12 digits, as C libraries differ in the last one, within the range."""
        return min(max(float(f"{value:.12g}"), self.low), self.high)


Answer = Callable[[Parameter], Any]


def values_of(over: Mapping[str, Distribution], answer: Answer) -> dict[str, Any]:
    """The values of a trial, each parameter that there is asked for in order."""
    return {path: _value(what, path, answer) for path, what in over.items()}


def _value(what: Distribution, name: str, answer: Answer) -> Any:
    parameter = _scalar(what, name)
    if parameter is not None:
        chosen = answer(parameter)
        if what.choice is not None:
            return copy.deepcopy(what.choice[int(chosen)])
        return int(chosen) if parameter.kind == "whole" else parameter.rounded(float(chosen))
    if what.blocks is not None:
        count = int(answer(_count(what, name)))
        return [_value(what.blocks.each, f"{name}#{number}", answer) for number in range(count)]
    return [_value(child, f"{name}#{number}", answer) for number, child in enumerate(what.elements or ())]


def answers_of(over: Mapping[str, Distribution], values: Mapping[str, Any]) -> dict[Parameter, Any]:
    """What was answered for a trial with these values."""
    return dict(pair for path, what in over.items() for pair in _answers(what, path, values[path]))


def _answers(what: Distribution, name: str, value: Any) -> Iterator[tuple[Parameter, Any]]:
    parameter = _scalar(what, name)
    if parameter is not None:
        yield parameter, what.choice.index(value) if what.choice is not None else value
    elif what.blocks is not None:
        yield _count(what, name), len(value)
        for number, child in enumerate(value):
            yield from _answers(what.blocks.each, f"{name}#{number}", child)
    else:
        for number, (part, child) in enumerate(zip(what.elements or (), value)):
            yield from _answers(part, f"{name}#{number}", child)


def parameters(over: Mapping[str, Distribution]) -> list[tuple[Parameter, bool]]:
    """All parameters that there may be, and whether each of them always is."""
    return [found for path, what in over.items() for found in _parameters(what, path, True)]


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
    if what.uniform is not None:
        return Parameter(name, "real", *what.uniform)
    if what.log_uniform is not None:
        return Parameter(name, "log", *what.log_uniform)
    return None if what.integer is None else Parameter(name, "whole", *what.integer)


def _count(what: Distribution, name: str) -> Parameter:
    assert what.blocks is not None, "only blocks have a length"
    return Parameter(f"{name}#count", "whole", *what.blocks.count)
