"""Comma-separated tables that people wrote: read column by column, with all that is wrong told at once."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fleet.scheduling.model.arrays import Flags, Floats
from fleet.spec.problem import nearest, shown
from fleet.spec.values import timestamp, unix_seconds
from preprocess.files.memory import check_claim
from preprocess.files.reading import open_file

SHOWN = 20
"""Problems that a report spells out; of the others it tells the count."""


@dataclass(frozen=True)
class TraceProblem:
    """One thing that is wrong.

    Attributes:
        file: as the user named it.
        rule: what should stand there.
        mend: what to do.
        line: line of the file, from 1; None: the whole file.
        column: name of the column.
        value: the text that stands there; None: nothing that could be shown.
    """

    file: str
    rule: str
    mend: str
    line: int | None = None
    column: str | None = None
    value: str | None = None

    def __str__(self) -> str:
        place = [self.file] if self.line is None else [f"{self.file}: line {self.line}"]
        place += [] if self.column is None else [self.column]
        value = "" if self.value is None else f" = {shown(self.value, 60)}"
        return f"{', '.join(place)}{value}: {self.rule}; {self.mend}"


class TraceError(ValueError):
    """A trace, or a table of rates, that cannot be used.

    Attributes:
        problems: everything that is wrong with it, by file and line.
    """

    def __init__(self, problems: Iterable[TraceProblem]) -> None:
        found = dict.fromkeys(problems)
        self.problems = tuple(sorted(found, key=lambda problem: (problem.file, problem.line or 0)))
        super().__init__(self._report())

    @classmethod
    def of(cls, file: str | Path, rule: str, mend: str) -> TraceError:
        """The error of a file that is of no use as a whole."""
        return cls([TraceProblem(str(file), rule, mend)])

    def _report(self) -> str:
        count = len(self.problems)
        lines = [f"{count} problem{'' if count == 1 else 's'}"]
        lines += [f"  {number}. {problem}" for number, problem in enumerate(self.problems[:SHOWN], start=1)]
        if count > SHOWN:
            lines.append(f"  and {count - SHOWN} more")
        return "\n".join(lines)


def advice_on(value: str, names: Iterable[object]) -> str:
    """Advice on `value`, which is none of `names`: the nearest, if one is near, and all of them."""
    known = [str(name) for name in names]
    close = nearest(value, known)
    guess = f"did you mean {close!r}? " if close else ""
    return f"{guess}known: {', '.join(known) if known else 'none'}"


WHOLE_LIMIT = 2**53
"""Counts from here on are not exact as floating-point numbers."""

_ROWS_AT_ONCE = 10_000
_MOST_COLUMNS = 1_000
MOST_BYTES = 1 << 32
GROWTH = 10
"""What a file takes in memory, to what it has on the disk."""


class CsvReader(Protocol):
    """What csv.reader gives."""

    @property
    def line_num(self) -> int: ...

    def __iter__(self) -> Iterator[list[str]]: ...


@dataclass
class TraceTable:
    """The cells of a file, and the mistakes found in them so far.

    Attributes:
        file: as the user named it.
        columns: name -> cells, each without a value where its line ends early.
        lines: line of each row, from 1; the header is the first.
        problems: collected by `numbers` and its like; `finish` raises them.
    """

    file: str
    columns: dict[str, list[str]]
    lines: list[int]
    problems: list[TraceProblem] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.lines)

    def has(self, column: str | None) -> bool:
        """Whether there is such a column."""
        return column is not None and column in self.columns

    def texts(self, column: str, default: str | None = None) -> list[str]:
        """The cells of a column; `default` where there is none. Without a default an empty cell is a problem."""
        cells = self.columns.get(column)
        if cells is None:
            return [default or ""] * len(self)
        if default is None and not all(map(str.strip, cells)):
            for row in [row for row, cell in enumerate(cells) if not cell.strip()]:
                self.blame(row, column, "this cell is empty", "every job needs one")
        return cells

    def names(self, column: str) -> list[str]:
        """The cells of a column that tells the jobs apart; two that agree are a problem."""
        cells = self.texts(column)
        if len(set(cells)) == len(cells):
            return cells
        first: dict[str, int] = {}
        for row, cell in enumerate(cells):
            earlier = first.setdefault(cell, row)
            if earlier != row and cell.strip():
                rule = f"line {self.lines[earlier]} has the same; every job needs a name of its own"
                self.blame(row, column, rule, "rename one of them")
        return cells

    def numbers(
        self, column: str, least: float = -math.inf, whole: bool = False, above: bool = False, optional: bool = False
    ) -> Floats:
        """A column as numbers; NaN where there is none.

        Args:
            least: no number is smaller.
            whole: all are whole numbers.
            above: `least` itself is too small.
            optional: the column, or a cell, may be missing.
        """
        if column not in self.columns:
            return np.full(len(self), np.nan)
        values, unread, empty = _parsed(self.columns[column])
        wrong = ~np.isfinite(values) | ((values <= least) if above else (values < least))
        if whole:
            wrong |= (np.abs(values) >= WHOLE_LIMIT) | (values != np.floor(values))
        wrong = (wrong & ~empty) | unread | (empty & (not optional))
        if wrong.any():
            self._blame_numbers(column, np.flatnonzero(wrong), _range(least, whole, above))
            values[wrong] = np.nan
        return values

    def times(self, column: str) -> Floats:
        """A column of seconds, or of dates such as 2017-10-07 01:12:09, as seconds; dates count from 1970 (UTC)."""
        cells = self.columns.get(column, [])
        if not any(as_date(cell) is not None for cell in cells[:1]):
            return self.numbers(column, least=0)
        values = np.full(len(cells), np.nan)
        for row, cell in enumerate(cells):
            seconds = as_date(cell)
            if seconds is None:
                self.blame(row, column, "this is no date", "write it as the first line does, as 2017-10-07 01:12:09")
            else:
                values[row] = seconds
        return values

    def relate(self, column: str, start: float | None) -> None:
        """Times of day in a column become seconds after `start`, which is in seconds since 1970; None: not known."""
        for row, cell in enumerate(self.columns.get(column, ())):
            if ":" not in cell:
                continue
            try:
                seconds = unix_seconds(timestamp(cell)) - (start or 0.0)
            except ValueError:
                continue  # it is no number either, which is told
            if start is None:
                rule = "this is a time of day, and nobody says when the trace begins"
                self.blame(row, column, rule, "say it with --start, or write seconds")
            self.columns[column][row] = repr(seconds)

    def check(self, right: Flags, column: str, rule: str, mend: str) -> None:
        """Tell of the rows where `right` is false."""
        for row in np.flatnonzero(~right).tolist():
            self.blame(row, column, rule, mend)

    def blame(self, row: int, column: str, rule: str, mend: str) -> None:
        """Tell of one cell."""
        value = self.columns[column][row] if column in self.columns else None
        self.problems.append(TraceProblem(self.file, rule, mend, self.lines[row], column or "(no name)", value))

    def require(self, columns: Iterable[str], format: str) -> None:
        """Every one of these columns is there, or `finish` says so.

        Raises:
            TraceError: one is missing; nothing can be said about the rows then.
        """
        missing = [column for column in columns if column not in self.columns]
        there = ", ".join(name or "(no name)" for name in self.columns)
        for column in missing:
            rule = f"there is no such column, and a trace of format {format} needs it; there are: {there}"
            self.problems.append(TraceProblem(self.file, rule, "add it, or name another format", 1, column))
        if missing:
            self.finish()

    def finish(self) -> None:
        """Raise the mistakes that were found.

        Raises:
            TraceError: something was.
        """
        if self.problems:
            raise TraceError(self.problems)

    def _blame_numbers(self, column: str, rows: npt.NDArray[np.int64], rule: str) -> None:
        for row in rows.tolist():
            self.blame(row, column, rule, "correct it, or leave the job out")


def read_table(path: Path) -> TraceTable:
    """Read a comma-separated file whose first line names the columns. Blank lines are passed over.

    Raises:
        TraceError: it cannot be read, is empty or not comma-separated text, or a row has more cells than the header.
    """
    try:
        with open_file(path) as opened:
            size = os.fstat(opened.fileno()).st_size
            check_claim(path, GROWTH * size)
            with io.TextIOWrapper(opened, encoding="utf-8-sig", newline="") as file:
                table = _read(str(path), csv.reader(file))
    except OSError as error:
        raise TraceError.of(path, f"it cannot be read: {error.strerror}", "name a file that can") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError.of(path, "this is no comma-separated text", "name a .csv file in UTF-8") from error
    if not table.columns:
        raise TraceError.of(path, "the file is empty", "name a file with jobs")
    if any("\0" in name for name in table.columns):
        raise TraceError.of(path, "this is no comma-separated text", "name a .csv file in UTF-8")
    table.finish()
    if not table.lines:
        raise TraceError.of(path, "there is a header, but nothing below it", "name a file with lines below its header")
    return table


def _read(file: str, reader: CsvReader) -> TraceTable:
    """The columns, some thousand rows at a time: a million rows at once are too many lists."""
    lines = _filled(reader)
    _, header = next(lines, (1, []))
    names = [name.strip() for name in header]
    if len(names) > _MOST_COLUMNS:  # rows may be shorter than the header, and take as much memory
        rule = f"the first line names {len(names):,} columns; a table has {_MOST_COLUMNS:,} at most"
        raise TraceError([TraceProblem(file, rule, "keep those that are read", 1)])
    table = TraceTable(file, {name: [] for name in names}, [])
    table.problems += [_repeated(file, name) for name in table.columns if names.count(name) > 1]
    if len(names) == 1 and "\0" not in names[0]:
        rule = "the first line names the columns, and holds no comma"
        table.problems.append(TraceProblem(file, rule, "separate the columns by commas", 1, value=names[0]))
    while not table.problems and (part := list(islice(lines, _ROWS_AT_ONCE))):
        table.lines += [line for line, _ in part]
        rows = [_padded(table, line, row, len(names)) for line, row in part]
        for name, cells in zip(names, zip(*rows)):
            table.columns[name] += cells
    return table


def _filled(reader: CsvReader) -> Iterator[tuple[int, list[str]]]:
    """The rows that hold anything, each with the line on which it begins."""
    line = 1
    for row in reader:
        if any(row) and any(map(str.strip, row)):
            yield line, row
        line = reader.line_num + 1


def _padded(table: TraceTable, line: int, row: list[str], width: int) -> list[str]:
    if len(row) > width:
        rule = f"this line has {len(row)} cells, but the header names {width} columns"
        table.problems.append(TraceProblem(table.file, rule, "quote cells that hold a comma", line))
    return row if len(row) == width else (row + [""] * width)[:width]


def _repeated(file: str, name: str) -> TraceProblem:
    return TraceProblem(file, "two columns have this name", "rename one of them", 1, name or "(no name)")


def _parsed(cells: Sequence[str]) -> tuple[Floats, Flags, Flags]:
    """The cells as numbers, which of them are none, and which are empty."""
    nowhere = np.zeros(len(cells), np.bool_)
    try:
        if "_" not in "".join(cells):  # Python reads 1_000 as a number
            return np.array(list(map(float, cells)), dtype=np.float64), nowhere, nowhere
    except ValueError:
        pass
    empty = np.array([not cell.strip() for cell in cells], dtype=np.bool_)
    read = [_number(cell) for cell in cells]
    unread = np.array([number is None for number in read], dtype=np.bool_) & ~empty
    return np.array([np.nan if number is None else number for number in read]), unread, empty


def _number(text: str) -> float | None:
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _range(least: float, whole: bool, above: bool) -> str:
    kind = "a whole number" if whole else "a finite number"
    if least == -math.inf:
        return f"it must be {kind}"
    return f"it must be {kind} above {least:g}" if above else f"it must be {kind}, {least:g} or more"


def as_date(text: str) -> float | None:
    """Seconds since 1970 of a date. The name of a time zone after it is passed over: one trace has one zone."""
    try:
        found = datetime.fromisoformat(text.strip()[:19])
    except ValueError:
        return None
    return found.replace(tzinfo=timezone.utc).timestamp()
