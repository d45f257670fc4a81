"""Keys that are varied only where others have certain values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic_core import PydanticCustomError

from fleet.spec.distributions import Distribution, draw
from fleet.spec.problem import listed, nearest, shown

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
        meant = nearest(other, varied)
        raise PydanticCustomError(
            "condition_of_nothing",
            "{path} is set when {other} has a value, and {other} does not vary; what varies is {varied}",
            {
                "path": path, "other": other, "varied": listed(varied) or "nothing else",
                **({"suggestion": meant} if meant else {}),
                "mend": f"vary {other} beside it, such as {{choice: [...]}}, or take the condition away",
            },
        )  # fmt: skip
    for value in accepted(what, other):
        if not any(_can_be(one, value) for one in over[other].cases or (over[other],)):
            choice = over[other].choice
            meant = nearest(value, [each for each in choice or () if isinstance(each, str)])
            mend = f"write {listed([shown(each, 40) for each in choice])}" if choice else "write a value of its range"
            raise PydanticCustomError(
                "condition_never_holds",
                "{path} is set when {other} is {value}, which it never is",
                {
                    "path": path, "other": other, "value": shown(value, 40),
                    **({"suggestion": meant} if meant else {}), "mend": mend,
                },
            )  # fmt: skip


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
                rule = "{path} is set by what is set by {path}: the conditions go in a circle"
                raise PydanticCustomError("circle_of_conditions", rule, {"path": path, "mend": "take one of them away"})
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
        """How many there are; None: any number."""
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
    """How many values a distribution has, whatever its condition; None: any number."""
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
