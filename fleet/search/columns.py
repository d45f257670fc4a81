"""A trial's values as a flat row: one column for each parameter that is chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fleet.search.sampling.space import parameters
from fleet.spec import SearchSpec
from fleet.spec.distributions import Distribution, applies


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
