"""What keys of the journal's lines hold, as values of their types."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from fleet.run_directory.journal import JournalLine


def integers_of(values: Iterable[Any]) -> tuple[int, ...]:
    """Whole numbers of a list."""
    return tuple(int(value) for value in values)


def number_of(value: Any) -> float | None:
    """A number; None: it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value)


def seconds_of(event: JournalLine) -> float:
    """What an event took; 0 where it does not say."""
    seconds = number_of(event.get("seconds"))
    return seconds if seconds is not None and math.isfinite(seconds) else 0.0


def by_integer(values: Any) -> dict[int, float]:
    """A mapping whose keys are numbers as text, by number."""
    return {int(key): float(value) for key, value in sorted((values or {}).items(), key=lambda item: int(item[0]))}


def makers_of(event: JournalLine) -> int:
    """The preprocessors that work in a round, trainers that help them among these."""
    return int(event["working"]) + len(event.get("trainers") or ())


def metrics_of(event: JournalLine) -> dict[str, float]:
    """The metrics that are numbers (NaN among them: a diverged network says so)."""
    values = ((str(name), number_of(value)) for name, value in (event.get("metrics") or {}).items())
    return {name: value for name, value in values if value is not None}
