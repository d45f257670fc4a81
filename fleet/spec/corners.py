"""The ends of what a search's values can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fleet.spec.conditions import accepted, applies, as_written, in_order
from fleet.spec.distributions import Distribution

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
    """Whether there are values of others with which it is not set, or is another one."""
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
