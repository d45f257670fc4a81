"""What a tracker of experiments is told, whatever its name: facts of plain types."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fleet.journal.events import Event

Status = Literal["SCHEDULED", "RUNNING", "FINISHED", "FAILED", "KILLED"]


@dataclass(frozen=True)
class Point:
    """A value of a metric.

    Attributes:
        step: the network's since it began; the ensemble's is what `ENSEMBLE_STEPS` says.
        time: when it was measured, milliseconds since 1970.
    """

    metric: str
    value: float
    step: int
    time: int


@dataclass(frozen=True)
class TrackedRun:
    """One run of the tracker.

    Attributes:
        name: as people see it.
        job: the network; empty: it is of all networks together.
        begin, end: milliseconds since 1970; None: it has not begun, or not ended.
    """

    name: str
    job: str
    status: Status
    begin: int | None = None
    end: int | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    points: tuple[Point, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)

    def digest(self) -> str:
        """Something else whenever there is something else to tell: points only become more."""
        facts = (self.name, self.status, self.begin, self.end, len(self.points), self.points[-1:])
        content = repr((facts, sorted(self.parameters.items()), sorted(self.tags.items())))
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class TrackedEnsemble:
    """A run of fleet.

    Attributes:
        identity: the same for every copy of its directory.
        state: as `fleet status` tells it.
    """

    identity: str
    name: str
    state: str
    ensemble: TrackedRun
    networks: tuple[TrackedRun, ...]


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield dotted keys and texts of a mapping of plain values; what is null or empty is left out."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        elif value is not None and value != "" and value != []:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value)


def unix_milliseconds(event: Event | None) -> int | None:
    """When an event was written down, milliseconds since 1970; None: it does not say."""
    return None if event is None or not event.unix else round(1000 * event.unix)
