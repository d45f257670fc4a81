"""Reads a trace of any format, which it finds by the file's columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fleet.simulator.traces import easyscale, elasticflow, native, philly, pollux, run_journal
from fleet.simulator.traces.problem import TraceError, TraceProblem, advice_on
from fleet.simulator.traces.table import TraceTable, read_table
from fleet.simulator.traces.trace import Trace

TraceReader = Callable[[TraceTable], Trace]

TABLES: Mapping[str, TraceReader] = {
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

_PHILLY_MORE = (*philly.NAMES, *philly.TENANTS, *philly.MODELS, *philly.STATUS)
_SIGNS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (elasticflow.FORMAT, elasticflow.COLUMNS, ()),
    (elasticflow.FORMAT, elasticflow.SHORT_COLUMNS, ()),
    (easyscale.FORMAT, easyscale.COLUMNS, ()),
    (pollux.FORMAT, pollux.COLUMNS, ()),
    (native.FORMAT, native.COLUMNS, native.OTHERS),
    *(
        (philly.FORMAT, (time, devices, "duration"), _PHILLY_MORE)
        for time in philly.TIMES
        for devices in philly.DEVICES
    ),
)
"""For each format the columns that it needs, and those that it may have."""
_SHOWN = 6  # signs that a report spells out; philly's differ in names alone


def read_trace(path: str | Path, format: str | None = None, start: float | None = None) -> Trace:
    """Read a trace.

    Args:
        path: a file, or the directory of a run.
        format: one of FORMATS; None: found by the columns (of a .json file or of a run's journal, by its name).
        start: when the file's second 0 is, seconds since 1970; None: deadlines are no times of day.

    Raises:
        TraceError: the file cannot be used; it tells of everything that is wrong.
        ValueError: there is no such format.
    """
    path = Path(path)
    if format is not None and format not in FORMATS:
        raise ValueError(f"format {format!r} is not known; {advice_on(format, FORMATS)}")
    format = format or _by_name(path)
    whole = FILES.get(format or "")
    if whole is not None:
        return whole(path)
    table = read_table(path)
    table.relate("deadline", start)
    return TABLES[format or _by_columns(table)](table)


def _by_name(path: Path) -> str | None:
    if path.is_dir() or path.suffix == ".jsonl":
        return run_journal.FORMAT
    return philly.LOG_FORMAT if path.suffix == ".json" else None


def _by_columns(table: TraceTable) -> str:
    """The format that knows the most of the columns, and of whose own at least half are there.

    Of those that know equally many, one that misses nothing.
    """
    ranked = [
        (_known(table, needed + more), _known(table, needed) / len(needed), format) for format, needed, more in _SIGNS
    ]
    likely = [rank for rank in ranked if rank[1] >= 0.5]
    if likely:
        return max(likely, key=lambda rank: rank[:2])[2]
    known = "; ".join(f"{format}: {', '.join(columns)}" for format, columns, _ in _SIGNS[:_SHOWN])
    rule = f"no format of traces has these columns: {', '.join(table.columns)}"
    raise TraceError([TraceProblem(table.file, rule, f"name the columns as one of these does - {known}", 1)])


def _known(table: TraceTable, columns: Sequence[str]) -> int:
    return sum(column in table.columns for column in columns)
