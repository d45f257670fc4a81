"""What is known of a trial: to a sampler, and to people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["suggested", "paused", "stopped", "done", "failed"]


@dataclass(frozen=True)
class Record:
    """What a sampler may know of an earlier trial.

    Attributes:
        trial: its number.
        values: dotted path -> what was suggested.
        losses: epoch -> value of the metric there, negated where more is better, so that less is better.
        status: `suggested` is one whose next result is not known yet.
        further: epoch -> values of the search's further metrics there, so that less is better; empty: it has none.
    """

    trial: int
    values: Mapping[str, Any]
    losses: Mapping[int, float] = field(default_factory=dict)
    status: Status = "suggested"
    further: Mapping[int, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What people may know of a trial.

    Attributes:
        trial: its number.
        values: dotted path -> what was suggested.
        status: `paused` is one that may be resumed yet.
        epochs: how many it has trained, as the search knows.
        value: its metric after them; None if it has none.
        further: its further metrics then.
    """

    trial: int
    values: Mapping[str, Any]
    status: Status
    epochs: int
    value: float | None
    further: tuple[float, ...] = ()
