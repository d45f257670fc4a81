"""The jobs of a trace as columns: a million of them take megabytes, and become `TraceJob`s only when looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from fleet.scheduling.model.arrays import Counts, Flags, Floats
from fleet.simulator.traces.job import TraceJob

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
