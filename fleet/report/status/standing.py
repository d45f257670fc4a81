"""How a run stands, as records: what `fleet status` prints and gives as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class RunningJob:
    """A job that trains now.

    Attributes:
        epochs, most_epochs: finished ones, and those of its spec; None: not known.
        metrics: of its last epoch.
        rate: samples/s; None: nobody knows yet.
        seconds: until its last epoch ends, if nothing ends it sooner; None: nobody knows.
        source: of `rate`: `epoch` (its last one, waits included), `steps` (the first ones) or `plan` (the policy's).
        held: device-seconds so far.
        joules: used so far; None: nothing tells it.
    """

    job: str
    devices: tuple[int, ...]
    hosts: tuple[str, ...]
    epochs: int
    most_epochs: int | None
    metrics: Mapping[str, float]
    rate: float | None
    seconds: float | None
    source: str
    held: float
    joules: float | None = None


@dataclass(frozen=True)
class OtherJob:
    """A job that does not train now, as `RunningJob`; `why`: what it waits for, or why it ended."""

    job: str
    status: str
    epochs: int
    most_epochs: int | None
    metrics: Mapping[str, float]
    held: float
    why: str
    joules: float | None = None


@dataclass(frozen=True)
class Writer:
    """Who writes the run directory.

    Attributes:
        name: the process and its node; empty: nobody.
        lives: whether it does; None: it is on another node, and its record has not been renewed for long.
        silent: seconds since it renewed its record; None: there is none.
    """

    name: str
    lives: bool | None
    silent: float | None


@dataclass(frozen=True)
class SearchStanding:
    """How a run's search stands.

    Attributes:
        metric: by which trials are compared.
        trials, most_trials: how many have begun, and may; None: as many as the epochs allow.
        epochs, most_epochs: that trials were told to train, and may; None: as many as the trials need.
        most_hours: of the run, that the search may take; None: any number.
        best: name of the trial whose last result is best; empty: there is no result.
        best_value: its metric, best_epochs: after how many epochs; None: there is no result.
        values: dotted path -> what was suggested for it.
        front: with several metrics, names of the trials than whose last results no other's are better in all.
    """

    metric: str
    trials: int
    most_trials: int | None
    epochs: int
    most_epochs: int | None
    most_hours: float | None = None
    best: str = ""
    best_value: float | None = None
    best_epochs: int | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    front: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunStanding:
    """How a run stands.

    Attributes:
        state: starting, measuring, training, stopping, done, failed, stopped, killed or silent.
        counts: of jobs by status: running, waiting, stopped (by name), paused or pruned (by a search), done, failed.
        waits: of the waiting jobs, how many for what.
        devices, busy: how many there are in the last session, and how many of them jobs hold now.
        device_seconds, reserved: held by jobs, and of all devices for as long as sessions lasted.
        seconds: of the run, over all sessions.
        left: seconds until all jobs are done, as far as can be told; None: cannot.
        unrated: unfinished jobs of which nobody knows how fast they train.
        last_event, age: kind of the journal's last event, and seconds since then.
        scheduler: batch system and id of the last session's allocation; empty: none that is known.
        allocation_left: seconds until the allocation ends; None: not known.
        joules, idle_joules: used by jobs, and by hosts while devices idled; None: nothing tells it.
        searches: whether there are trials of a search that is not over: more may train than those that are known.
        search: how the run's search stands; None: it has none.
        damaged: lines of the journal that are not as they were written, of those that were looked at.
    """

    directory: str
    name: str
    state: str
    policy: str
    sessions: int
    counts: Mapping[str, int]
    waits: Mapping[str, int]
    running: tuple[RunningJob, ...]
    devices: int
    busy: int
    device_seconds: float
    reserved: float
    seconds: float
    left: float | None
    unrated: int
    last_event: str
    age: float | None
    writer: Writer
    scheduler: str = ""
    allocation_left: float | None = None
    warnings: int = 0
    damaged: int = 0
    measuring: str = ""
    searches: bool = False
    search: SearchStanding | None = None
    joules: float | None = None
    idle_joules: float | None = None
    others: tuple[OtherJob, ...] = ()
