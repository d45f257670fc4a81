"""The door for trackers of experiments: what they are told of a run, and the class that they inherit from."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from fleet.journal.whole_files import masked_uri

Status = Literal["SCHEDULED", "RUNNING", "FINISHED", "FAILED", "KILLED"]
ENDED = ("FINISHED", "FAILED", "KILLED")


@dataclass(frozen=True)
class Point:
    """A value of a metric.

    Attributes:
        step: optimiser steps of the network since it began. Of all networks together: how many are done, or the number
            of the session at whose end it was measured.
        time: when it was measured, milliseconds since 1970.
    """

    metric: str
    value: float
    step: int
    time: int


@dataclass(frozen=True)
class TrackedRun:
    """One run of the tracker: a network, or all networks together.

    Attributes:
        name: as people see it.
        job: the network; empty: it is of all networks together.
        identity: of fleet's run, the same for every copy of its directory.
        begin, end: milliseconds since 1970; None: it has not begun, or not ended.
        parameters: dotted key of the spec -> its text.
        points: all that were measured until now.
        tags: facts in fleet's own words, such as `fleet.checkpoint`, the path of the newest one.
    """

    name: str
    job: str
    identity: str
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
        name: of its spec.
        state: as `fleet status` tells it.
        ensemble: all networks together.
    """

    name: str
    state: str
    ensemble: TrackedRun
    networks: tuple[TrackedRun, ...]


class TrackingError(ValueError):
    """A person can mend this; the text says the mistake and the mend."""


class StoreError(TrackingError):
    """The tracker's store cannot be read or written now; the same call may succeed later."""


@dataclass(frozen=True)
class Told:
    """How much was new: runs of the tracker, and values of metrics."""

    runs: int = 0
    points: int = 0

    def __add__(self, other: Told) -> Told:
        return Told(self.runs + other.runs, self.points + other.points)


class Tracker(ABC):
    """Tells a tracker of experiments of a run's networks. `fleet track --to module:Name` makes one and calls `tell`.

    A class of it has two methods. `known` says which values the tracker has of a run already, and `log` adds the
    others: so a call that is repeated, or goes on after one that was interrupted, adds what is new and nothing twice.
    Both are called for all networks together first (`run.job` is empty), then for each network that has begun, and not
    again until there is something new. `open`, `is_told` and `close` may be overridden; `tell` calls them all.

    Args:
        uri: where the tracker keeps its runs, as `--uri` says; None: `default_uri`.
        experiment: what groups runs, as `--experiment` says; None: the name of the run's spec.

    Attributes:
        default_uri: where the tracker keeps its runs if nobody says it.
    """

    default_uri: ClassVar[str] = "tracked"

    def __init__(self, uri: str | None = None, experiment: str | None = None) -> None:
        self.uri, self.experiment = uri or self.default_uri, experiment or ""
        self._digests: dict[str, str] = {}
        self._is_open = False

    @abstractmethod
    def known(self, run: TrackedRun) -> Collection[tuple[str, int]] | None:
        """Return metric and step of each value that the tracker has of a run; None: it does not have the run yet."""

    @abstractmethod
    def log(self, run: TrackedRun, new: Sequence[Point]) -> None:
        """Add a run, or what changed in one: these values, its status, its parameters and its tags.

        Args:
            new: the values that the tracker does not know, in the order in which they were measured. There may be
                none: the status has changed, for instance.

        Raises:
            StoreError, OSError: the tracker cannot be written now; `fleet track --follow` tries again.
        """

    def open(self, run: TrackedEnsemble) -> None:
        """Prepare for a run of fleet, once, before all else; `experiment` has a name from now on."""
        self.experiment = self.experiment or run.name

    def is_told(self, run: TrackedRun) -> bool:
        """Whether the tracker knows all of a run. If nobody overrides it: whether this object has told it."""
        return self._digests.get(run.job) == run.digest()

    def close(self) -> None:
        """Write what is not written yet, and let go of what is open."""
        self._digests.clear()

    def tell(self, run: TrackedEnsemble) -> Told:
        """Add what the tracker does not have yet, and return how much that was.

        Raises:
            TrackingError: it cannot; StoreError: the same call may succeed later.
        """
        try:
            if not self._is_open:
                self.open(run)
                self._is_open = True
            begun = (network for network in run.networks if network.begin is not None or network.end is not None)
            return sum((self._told(each) for each in (run.ensemble, *begun) if not self.is_told(each)), Told())
        except OSError as error:
            raise StoreError(masked_uri(f"{self.uri}: {error}") + "; mend that, or name another by --uri") from error

    def _told(self, run: TrackedRun) -> Told:
        known = self.known(run)
        has = frozenset(known or ())
        new = [point for point in run.points if (point.metric, point.step) not in has]
        self.log(run, new)
        self._digests[run.job] = run.digest()
        return Told(int(known is None), len(new))
