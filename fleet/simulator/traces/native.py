"""fleet's own traces: a comma-separated file whose columns are `TraceJob`'s attributes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fleet.scheduling.model.arrays import Flags
from fleet.simulator.traces.columns import FLAGS, MEASURES, TEXTS, WHOLE, JobColumns
from fleet.simulator.traces.table import TraceTable
from fleet.simulator.traces.trace import Trace
from preprocess.files.writing import write_parts

FORMAT = "fleet"
COLUMNS = ("name", "arrival", "devices")
OTHERS = (*TEXTS[1:], *WHOLE, *MEASURES, "priority", *FLAGS)
_ROWS_AT_ONCE = 50_000
_LINE_END = "\r\n"  # RFC 4180; the csv module quotes a lone CR in a name only where lines end so


def read_native(table: TraceTable) -> Trace:
    """Read the columns name, arrival and devices, and whatever else `TraceJob` has; other columns are passed over.

    `samples` is work x batch_size where it is not given, and `work` likewise.

    Raises:
        TraceError: with every cell that is wrong.
    """
    table.require(COLUMNS, FORMAT)
    columns: dict[str, Any] = {"name": table.names("name"), "arrival": table.numbers("arrival", least=0)}
    columns["devices"] = table.numbers("devices", least=1, whole=True)
    columns |= {column: table.texts(column, "") for column in TEXTS[1:]}
    columns |= {column: table.numbers(column, least=1, whole=True, optional=True) for column in WHOLE}
    columns |= {column: table.numbers(column, 0, above=True, optional=True) for column in MEASURES}
    columns["priority"] = np.nan_to_num(table.numbers("priority", whole=True, optional=True))
    columns |= {"mixed": _flags(table, "mixed", "yes"), "soft": _flags(table, "soft", "no")}
    early = columns["deadline"] < columns["arrival"]
    table.check(~early, "deadline", "the deadline lies before the arrival", "correct one of the two")
    few = columns["minimum_devices"] > columns["devices"]
    table.check(
        ~few, "minimum_devices", "they are more than the devices that the job asks for", "correct one of the two"
    )
    alone = np.isnan(columns["service_devices"]) != np.isnan(columns["service_window"])
    table.check(~alone, "service_devices", "it goes with service_window", "give both, or none")
    table.finish()
    _complete(columns)
    return Trace.of(JobColumns.of(**columns, line=table.lines), table.file, FORMAT)


def write_trace(trace: Trace, path: Path) -> None:
    """Write a trace in fleet's own format: the columns that say something, whole or not at all. Times count from 0.

    Raises:
        OSError: it cannot be written; an earlier file of that name then stays as it was.
    """
    write_parts(path, _parts(trace.jobs))


def _parts(jobs: JobColumns) -> Iterator[str]:
    """The text of the file, some ten thousand jobs at a time."""
    columns = [*COLUMNS, *(column for column in OTHERS if _says_something(jobs, column))]
    yield ",".join(columns) + _LINE_END
    for start in range(0, len(jobs), _ROWS_AT_ONCE):
        part = io.StringIO()
        cells = (_cells(getattr(jobs, column)[start : start + _ROWS_AT_ONCE]) for column in columns)
        csv.writer(part, lineterminator=_LINE_END).writerows(zip(*cells))
        yield part.getvalue()


def _says_something(jobs: JobColumns, column: str) -> bool:
    values = getattr(jobs, column)
    if column in TEXTS:
        return any(values)
    if column == "mixed":
        return not values.all()
    return bool(values.any() if column in ("priority", "soft") else (~np.isnan(values)).any())


def _cells(values: Any) -> Sequence[Any]:
    """Numbers as the shortest text that gives them back, and nothing for NaN."""
    if isinstance(values, tuple):
        return values
    if values.dtype == np.bool_:
        return ["yes" if value else "no" for value in values.tolist()]
    if values.dtype == np.int64:
        return list(values.tolist())
    if (values == np.floor(values)).all():
        return list(values.astype(np.int64).tolist())
    return ["" if value != value else int(value) if value.is_integer() else value for value in values.tolist()]


def _flags(table: TraceTable, column: str, empty: str) -> Flags:
    """A column of yes and no; empty: what an empty cell stands for."""
    said = [cell.strip().lower() or empty for cell in table.texts(column, empty)]
    known = np.array([text in ("yes", "no") for text in said], dtype=np.bool_)
    table.check(known, column, "it must be yes or no", "write one of these")
    return np.array([text == "yes" for text in said], dtype=np.bool_)


def _complete(columns: dict[str, Any]) -> None:
    """Fill in whichever of work and samples is missing from the other."""
    work, samples, batch = columns["work"], columns["samples"], columns["batch_size"]
    columns["samples"] = np.where(np.isnan(samples), work * batch, samples)
    columns["work"] = np.where(np.isnan(work), samples / batch, work)
