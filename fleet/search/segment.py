"""What a search asks for, and what it decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

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
