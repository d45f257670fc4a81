"""Reads a trace of any format, which it finds by the file's columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from fleet.simulator.traces import easyscale, elasticflow, native, philly, pollux, run_journal
from fleet.simulator.traces.problem import TraceError, TraceProblem, nearest
from fleet.simulator.traces.table import Table, read_table
from fleet.simulator.traces.trace import Trace

Reader = Callable[[Table], Trace]

TABLES: Mapping[str, Reader] = {
    elasticflow.FORMAT: elasticflow.read_elasticflow,
    easyscale.FORMAT: easyscale.read_easyscale,
    easyscale.AS_SIMULATED: easyscale.read_easyscale_as_simulated,
    pollux.FORMAT: pollux.read_pollux,
    philly.FORMAT: philly.read_philly,
    native.FORMAT: native.read_native,
}
"""Readers of comma-separated files, by format."""

FILES: Mapping[str, Callable[[Path], Trace]] = {
    philly.LOG_FORMAT: philly.read_philly_log,
    run_journal.FORMAT: run_journal.read_run,
}
"""Readers of other files, by format."""

FORMATS = (*TABLES, *FILES)

_SIGNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (elasticflow.FORMAT, elasticflow.COLUMNS),
    (elasticflow.FORMAT, elasticflow.SHORT_COLUMNS),
    (easyscale.FORMAT, easyscale.COLUMNS),
    (pollux.FORMAT, pollux.COLUMNS),
    (native.FORMAT, native.COLUMNS),
    *(
        (philly.FORMAT, (time, devices, "duration"))
        for time in philly.TIMES
        for devices in philly.DEVICES
    ),
)  # fmt: skip
"""What columns say of the format; the first of which all are there, else the one of which the most are."""


def read_trace(path: str | Path, format: str | None = None) -> Trace:
    """Read a trace.

    Args:
        path: a file, or the directory of a run.
        format: one of FORMATS; None: found by the columns (of a .json file or of a run's journal, by its name).

    Raises:
        TraceError: the file cannot be used; it tells of everything that is wrong.
        ValueError: there is no such format.
    """
    path = Path(path)
    if format is not None and format not in FORMATS:
        raise ValueError(f"format {format!r} is not known; {nearest(format, FORMATS)}")
    format = format or _by_name(path)
    whole = FILES.get(format or "")
    if whole is not None:
        return whole(path)
    table = read_table(path)
    return TABLES[format or _by_columns(table)](table)


def _by_name(path: Path) -> str | None:
    if path.is_dir() or path.suffix == ".jsonl":
        return run_journal.FORMAT
    return philly.LOG_FORMAT if path.suffix == ".json" else None


def _by_columns(table: Table) -> str:
    """The format whose columns are all there, or the one that at least half of its columns point to."""
    best, share = "", 0.0
    for format, columns in _SIGNS:
        there = sum(column in table.columns for column in columns) / len(columns)
        if there > share:
            best, share = format, there
    if share >= 0.5:
        return best
    known = "; ".join(f"{format}: {', '.join(columns)}" for format, columns in _SIGNS[:6])
    rule = f"no format of traces has these columns: {', '.join(table.columns)}"
    raise TraceError([TraceProblem(table.file, rule, f"name the columns as one of these does - {known}", 1)])
