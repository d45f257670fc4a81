"""What a search asks for, decides and is told: segments, decisions, records of trials, changes."""

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


Kind = Literal["start", "resume", "pause", "stop", "done", "fail"]
Verdict = Literal["pause", "stop", "done", "fail"]
"""What a result means for its trial: it may be resumed later, it never will, it has all epochs, it has no value."""


@dataclass(frozen=True, order=True)
class Segment:
    """Some epochs of a trial, after which the search wants its value.

    Attributes:
        trial: its number, from 0.
        start: epochs that it has by then.
        end: epochs that it is to have, more than `start`.
    """

    trial: int
    start: int
    end: int


@dataclass(frozen=True)
class Copy:
    """From whom a trial goes on that takes another one's weights.

    Attributes:
        donor: number of the other one.
        epoch: epochs that the other one had then.
        values: dotted path -> the trial's value from now on.
    """

    donor: int
    epoch: int
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Decision:
    """What a search decides at a virtual time.

    Attributes:
        time: virtual, in units of the costs of epochs.
        trial: whom it concerns.
        start: epochs before the segment.
        end: epochs after it.
        kind: `start` or `resume` put the segment into a virtual slot; the others say what its result means.
        copy: of `resume`, from whom the trial goes on; None: from itself.
    """

    time: int
    trial: int
    start: int
    end: int
    kind: Kind
    copy: Copy | None = None


@dataclass(frozen=True)
class Change:
    """New bounds of a search from a virtual time on; what is None stays.

    It comes after all events of its time, and before any later one, so what was decided by then stays decided.

    Attributes:
        time: virtual.
        width: virtual slots; where there are fewer, segments under way are not cut short.
        trials: how many trials there may be in all.
        planned: how many trials the rule reckons with from then on, where that is not `trials`; see `Search`.
        epochs: how many epochs all trials together may train.
        over: whether the search ends then, with whatever is under way; False: one that ended so goes on.
        own: how a trial that a person trains stands from then on; its number is `OWN_TRIALS` or more.

    Raises:
        ValueError: a number that cannot be.
    """

    time: int
    width: int | None = None
    trials: int | None = None
    epochs: int | None = None
    over: bool | None = None
    own: Record | None = None
    planned: int | None = None

    def __post_init__(self) -> None:
        for name in ("width", "trials", "epochs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        if self.time < 0:
            raise ValueError(f"time is {self.time}; virtual time begins at 0")


OWN_TRIALS = 1_000_000
"""The number of the first of them; a search's own trials have lower ones."""


class OwnTrials:
    """They have no virtual slot, and no stopping rule knows them; a sampler that learns does."""

    def __init__(self) -> None:
        self._told: list[tuple[int, Record]] = []

    def take(self, begun: int, record: Record) -> None:
        """Take how one of them stands, as so many trials of the search have begun."""
        self._told.append((begun, record))

    def known(self, trial: int) -> list[Record]:
        """The own trials that were known when a trial of the search began, in the order of their numbers."""
        newest = {record.trial: record for begun, record in self._told if begun <= trial}
        return [newest[number] for number in sorted(newest)]
