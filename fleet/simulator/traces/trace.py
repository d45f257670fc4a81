"""A trace: its jobs as rows and as columns, in the order of their arrival, and how they come in a simulation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any, Protocol, overload

import numpy as np
import numpy.typing as npt

from fleet.scheduling.model.arrays import Counts, Flags, Floats
from fleet.scheduling.model.data_path import Feed
from fleet.scheduling.model.jobs import ServiceLevel
from fleet.scheduling.model.rates import RateCurve


@dataclass(frozen=True)
class TraceJob:
    """What a trace says of one job. None: it does not say.

    Attributes:
        name: unique in the trace.
        arrival: seconds since the first arrival of the trace.
        devices: how many it asks for: the size of its gang, where it is not elastic.
        model: the application; a table of rates knows it by this name.
        batch_size: samples of one step of the whole job.
        work: steps at that batch size.
        samples: work x batch_size.
        deadline: seconds, on the scale of `arrival`.
        duration: seconds of training on `devices`.
        limit: most devices that it can use.
        minimum_devices: the fewest devices that it runs on; none does where it is not said.
        workers: virtual workers N; a step on m devices takes ceil(N / m) turns.
        epochs: epochs of training.
        service_devices: devices that it is promised in the mean of each window; none where it is not said.
        service_window: seconds of such a window.
        priority: the larger goes first.
        kind: the kind of device that it prefers.
        mixed: whether devices of several kinds may train it at once.
        soft: whether it is still worth something after its deadline.
        stream: jobs of the same stream can share samples at the same epoch; empty: it shares with nobody.
        tenant: for whom it runs: a user, a virtual cluster.
        outcome: how it ended when the trace was taken.
        further: epochs that may follow as other jobs, once this one is done; see `JobState`.
        line: its line in the trace's file, from 1.

    Raises:
        ValueError: a number that no job can have.
    """

    name: str
    arrival: float
    devices: int
    model: str = ""
    batch_size: int | None = None
    work: float | None = None
    samples: float | None = None
    deadline: float | None = None
    duration: float | None = None
    limit: int | None = None
    minimum_devices: int | None = None
    workers: int | None = None
    epochs: float | None = None
    service_devices: float | None = None
    service_window: float | None = None
    priority: int = 0
    kind: str = ""
    mixed: bool = True
    soft: bool = False
    stream: str = ""
    tenant: str = ""
    outcome: str = ""
    further: float = field(default=0.0, kw_only=True)
    line: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.arrival) and self.arrival >= 0):
            raise ValueError(f"job {self.name}: arrival is {self.arrival} s; it must be 0 or more, and finite")
        if self.deadline is not None and not self.deadline >= self.arrival:
            raise ValueError(f"job {self.name}: deadline {self.deadline} s lies before arrival {self.arrival} s")
        for name in ("devices", "batch_size", "limit", "minimum_devices", "workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"job {self.name}: {name} is {value}; it must be 1 or more")
        if self.minimum_devices is not None and self.minimum_devices > self.devices:
            what = f"minimum_devices {self.minimum_devices} are more than the {self.devices} devices"
            raise ValueError(f"job {self.name}: {what} that it asks for")
        for name in ("work", "samples", "duration", "epochs", "service_devices", "service_window"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"job {self.name}: {name} is {value}; it must be above 0, and finite")
        if (self.service_devices is None) != (self.service_window is None):
            raise ValueError(f"job {self.name}: of service_devices and service_window one is given; give both, or none")

    @property
    def service_level(self) -> ServiceLevel | None:
        """What it is promised."""
        if self.service_devices is None or self.service_window is None:
            return None
        return ServiceLevel(self.service_devices, self.service_window)


TEXTS = ("name", "model", "kind", "stream", "tenant", "outcome")
CHUNK = 1024
FLAGS = ("mixed", "soft")
WHOLE = ("batch_size", "limit", "minimum_devices", "workers")
MEASURES = ("work", "samples", "deadline", "duration", "epochs", "service_devices", "service_window")


@dataclass(frozen=True, eq=False, repr=False)
class JobColumns(Sequence[TraceJob]):
    """One array for each attribute of `TraceJob`, all of the same length, read-only. NaN stands for None.

    Indexing gives a `TraceJob`, slicing `JobColumns`.
    """

    name: tuple[str, ...]
    arrival: Floats
    devices: Counts
    model: tuple[str, ...]
    batch_size: Floats
    work: Floats
    samples: Floats
    deadline: Floats
    duration: Floats
    limit: Floats
    minimum_devices: Floats
    workers: Floats
    epochs: Floats
    service_devices: Floats
    service_window: Floats
    priority: Counts
    kind: tuple[str, ...]
    mixed: Flags
    soft: Flags
    stream: tuple[str, ...]
    tenant: tuple[str, ...]
    outcome: tuple[str, ...]
    line: Counts

    @classmethod
    def of(cls, name: Iterable[str], arrival: npt.ArrayLike, devices: npt.ArrayLike, **others: Any) -> JobColumns:
        """Columns from sequences; those that are not given hold what `TraceJob` holds by default."""
        columns: dict[str, Any] = {"name": tuple(name), "arrival": arrival, "devices": devices, **others}
        length = len(columns["name"])
        for column in fields(cls):
            columns[column.name] = _column(column.name, columns.get(column.name), length)
        return cls(**columns)

    @classmethod
    def from_jobs(cls, jobs: Iterable[TraceJob]) -> JobColumns:
        """Columns of jobs that stand there already."""
        known = list(jobs)
        columns = {column.name: [getattr(job, column.name) for job in known] for column in fields(cls)}
        columns["line"] = [0 if line is None else line for line in columns["line"]]
        return cls.of(**columns)

    def take(self, which: Counts) -> JobColumns:
        """The jobs at these positions, in this order."""
        columns: dict[str, Any] = {}
        for column in fields(self):
            values = getattr(self, column.name)
            taken = tuple(values[i] for i in which.tolist()) if column.name in TEXTS else _frozen(values[which])
            columns[column.name] = taken
        return JobColumns(**columns)

    def shifted(self, seconds: float) -> JobColumns:
        """Return the jobs with all their times moved by so much."""
        moved: dict[str, Any] = {
            "arrival": _frozen(self.arrival + seconds),
            "deadline": _frozen(self.deadline + seconds),
        }
        return replace(self, **moved)

    def renamed(self, names: Iterable[str]) -> JobColumns:
        """Return the jobs under other names."""
        return replace(self, name=_of_length("name", tuple(names), len(self)))

    def __repr__(self) -> str:
        return f"JobColumns({len(self)} jobs)"

    def __len__(self) -> int:
        return len(self.arrival)

    def __iter__(self) -> Iterator[TraceJob]:
        return chain.from_iterable(self._rows(begin) for begin in range(0, len(self), CHUNK))

    def _rows(self, begin: int) -> Iterator[TraceJob]:
        """The next CHUNK jobs: whole columns become Python numbers at once, several times as fast as one by one."""
        part = slice(begin, begin + CHUNK)
        columns: dict[str, Any] = {column.name: getattr(self, column.name)[part] for column in fields(self)}
        columns |= {name: columns[name].tolist() for name in columns.keys() - {*TEXTS}}
        columns |= {name: [_number(value, int) for value in columns[name]] for name in WHOLE}
        columns |= {name: [_number(value, float) for value in columns[name]] for name in MEASURES}
        columns["line"] = [line or None for line in columns["line"]]
        names = tuple(columns)
        return (TraceJob(**dict(zip(names, values))) for values in zip(*columns.values()))

    @overload
    def __getitem__(self, index: int) -> TraceJob: ...

    @overload
    def __getitem__(self, index: slice) -> JobColumns: ...

    def __getitem__(self, index: int | slice) -> TraceJob | JobColumns:
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        values: dict[str, Any] = {name: getattr(self, name)[index] for name in TEXTS}
        values |= {name: _number(getattr(self, name)[index], int) for name in WHOLE}
        values |= {name: _number(getattr(self, name)[index], float) for name in MEASURES}
        return TraceJob(
            arrival=float(self.arrival[index]),
            devices=int(self.devices[index]),
            priority=int(self.priority[index]),
            mixed=bool(self.mixed[index]),
            soft=bool(self.soft[index]),
            line=int(self.line[index]) or None,
            **values,
        )


def _column(name: str, values: Any, length: int) -> Any:
    if name in TEXTS:
        texts = ("",) * length if values is None else tuple(values)
        return _of_length(name, texts, length)
    if values is None:
        start = {"mixed": True, "soft": False, "priority": 0, "line": 0}.get(name, np.nan)
        return _frozen(np.full(length, start))
    kind = np.bool_ if name in FLAGS else np.int64 if name in ("devices", "priority", "line") else np.float64
    return _frozen(_of_length(name, np.array(values, dtype=kind), length))


def _of_length(name: str, values: Any, length: int) -> Any:
    if len(values) != length:
        raise ValueError(f"column {name} holds {len(values)} values, but there are {length} jobs")
    return values


def _frozen(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    values.flags.writeable = False
    return values


def _number(value: float, kind: type) -> Any:
    return None if value != value else kind(value)


class ComingJobs(Protocol):
    """Jobs by arrival, each known by its row, from 0 on."""

    @property
    def most(self) -> int:
        """No more jobs will come in all."""
        ...

    @property
    def next(self) -> float:
        """When the next one comes, seconds; infinite: none does, as far as is known."""
        ...

    def take(self) -> TraceJob:
        """The next one; its row is how many came before."""
        ...

    def ended(self, row: int, now: float) -> None:
        """A job is done; others may come of that, from now on."""
        ...

    def further(self) -> Mapping[str, float]:
        """Epochs that may follow on jobs that have come, of those of which that has changed since the last call."""
        ...


class TraceArrivals:
    """All jobs of a trace, as it says.

    Args:
        jobs: by arrival.
    """

    def __init__(self, jobs: JobColumns) -> None:
        self.most = len(jobs)
        self._arrivals, self._taken = jobs.arrival.tolist(), 0
        self._jobs: Iterator[TraceJob] = iter(jobs)

    @property
    def next(self) -> float:
        """See `ComingJobs`."""
        return self._arrivals[self._taken] if self._taken < self.most else math.inf

    def take(self) -> TraceJob:
        """See `ComingJobs`."""
        self._taken += 1
        return next(self._jobs)

    def ended(self, row: int, now: float) -> None:
        """Nothing comes of it."""

    def further(self) -> Mapping[str, float]:
        """See `ComingJobs`."""
        return {}


@dataclass(frozen=True, eq=False)
class Trace:
    """Jobs by arrival, which begins at 0; those that arrive together stand in the order of the file.

    Attributes:
        jobs: a sequence of `TraceJob`, and the same as columns.
        file: where it was read from, as the user named it; empty if it was made.
        format: name of the file's format.
        offset: what the file counts from its own origin to the first arrival, seconds: added to `arrival` and
            `deadline` of a job it gives the file's numbers.
        notes: what of the file was left out or changed, and why; for people.
        curves: job -> its rate curve, samples/s, where a run measured it.
        losses: job -> the loss of each of its epochs, from the first; policies see them once the epochs are over.
        feeds: job -> how fast all preprocessors make what it reads, where that is known.
        any_epoch: whether jobs of a stream share it at whatever epochs they are, as in FLEET's paper. In a run of fleet
            each epoch has an order of its own: jobs share at the same epoch alone.
        growing: jobs that come of others, in place of `jobs`.
    """

    jobs: JobColumns
    file: str = ""
    format: str = ""
    offset: float = 0.0
    notes: tuple[str, ...] = ()
    curves: Mapping[str, RateCurve] = field(default_factory=dict)
    losses: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    feeds: Mapping[str, Feed] = field(default_factory=dict)
    any_epoch: bool = False
    growing: ComingJobs | None = None

    @classmethod
    def of(cls, columns: JobColumns, file: str = "", format: str = "", notes: tuple[str, ...] = ()) -> Trace:
        """A trace of columns in any order whose times count from any origin."""
        offset = float(columns.arrival.min()) if len(columns) else 0.0
        if (np.diff(columns.arrival) < 0).any():
            columns = columns.take(np.argsort(columns.arrival, kind="stable"))
        return cls(columns.shifted(-offset) if offset else columns, file, format, offset, notes)

    def with_curves(self, curves: Mapping[str, RateCurve]) -> Trace:
        """Return the trace with these rate curves."""
        return replace(self, curves=dict(curves))

    def with_losses(self, losses: Mapping[str, tuple[float, ...]]) -> Trace:
        """Return the trace with how the jobs' losses fall."""
        return replace(self, losses=dict(losses))

    def with_feeds(self, feeds: Mapping[str, Feed]) -> Trace:
        """Return the trace with how fast the jobs' samples are made."""
        return replace(self, feeds=dict(feeds))

    def coming(self) -> ComingJobs:
        """The jobs as they come in a simulation."""
        return self.growing or TraceArrivals(self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[TraceJob]:
        return iter(self.jobs)
