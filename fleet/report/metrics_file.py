"""metrics.csv: one row for each epoch of each job, written as the run goes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from preprocess.files.memory import check_claim
from preprocess.files.reading import read_text
from preprocess.files.writing import naming, open_to_append, put_in_place, write_whole

_MOST_BYTES = 1 << 32
_GROWTH = 10  # of rows in memory, to what they take in the file
_Key = tuple[str, str]
"""Job and epoch."""
FIRST, LAST = ("job", "epoch", "step", "time"), ("rate", "devices")


class MetricsFile:
    """Rows by (job, epoch). A new row is appended; rows that come again or go, and new metrics, write it anew.

    Rows are in the file and not in memory, but for those that could not be written yet. An existing file is gone on
    with; one that is none of ours, or cannot be read, is set aside as metrics.csv.old. A torn last row is dropped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: dict[str, int] = {}  # job -> the last epoch that has a row in the file
        self._unwritten: dict[_Key, Mapping[str, str]] = {}
        self._cuts: dict[str, int] = {}  # job -> the last epoch whose row stays
        self._metrics: list[str] = []
        self._stale = False  # the file is not as it should be
        for job, epoch in self._rows():
            self._last[job] = max(self._last.get(job, -1), int(epoch))
        if self._stale:
            self._write()

    def put(self, row: Mapping[str, str], metrics: Mapping[str, str], values: Mapping[str, str] | None = None) -> None:
        """Write one epoch: `row` has the fixed columns, `metrics` and a trial's `values` the others."""
        named = {self._column(name): value for name, value in metrics.items()}
        for name, value in (values or {}).items():
            named[f"values.{name}" if name in metrics or name in (*FIRST, *LAST) else name] = value
        added = [name for name in named if name not in self._metrics]
        key = (row["job"], row["epoch"])
        again = int(row["epoch"]) <= self._last.get(row["job"], -1)
        anew = bool(added) or self._stale or again or not self._path.exists()
        self._metrics += added
        self._unwritten.pop(key, None)
        self._unwritten[key] = {**row, **named}
        self._stale = True
        if anew:
            self._write()
        else:
            self._append()

    def drop(self, job: str, epoch: int) -> None:
        """Take out the rows of all epochs of a job after this one: they were taken back."""
        if self._last.get(job, -1) > epoch:
            self._stale, self._cuts[job], self._last[job] = True, epoch, epoch
        for key in [key for key in self._unwritten if key[0] == job and int(key[1]) > epoch]:
            del self._unwritten[key]
        if self._stale:
            self._write()

    @property
    def columns(self) -> tuple[str, ...]:
        """job, epoch, step, time, the metrics and values as they came, rate, devices."""
        return (*FIRST, *self._metrics, *LAST)

    def _column(self, metric: str) -> str:
        return f"metrics.{metric}" if metric in (*FIRST, *LAST) else metric

    def _write(self) -> None:
        """Write all rows anew."""
        rows = {key: row for key, row in self._rows().items() if int(key[1]) <= self._cuts.get(key[0], int(key[1]))}
        for key, row in self._unwritten.items():
            rows.pop(key, None)
            rows[key] = row
        write_whole(self._path, self._text([dict(zip(self.columns, self.columns)), *rows.values()]))
        self._wrote()

    def _append(self) -> None:
        with naming(self._path), open_to_append(self._path) as file:
            file.write(self._text(self._unwritten.values()).encode())
        self._wrote()

    def _wrote(self) -> None:
        for job, epoch in self._unwritten:
            self._last[job] = max(self._last.get(job, -1), int(epoch))
        self._unwritten, self._cuts, self._stale = {}, {}, False

    def _text(self, rows: Iterable[Mapping[str, str]]) -> str:
        text = io.StringIO()
        csv.DictWriter(text, self.columns, restval="", lineterminator="\n").writerows(rows)
        return text.getvalue()

    def _rows(self) -> dict[_Key, Mapping[str, str]]:
        """Read the rows of the file, and the columns that it has; set another file aside."""
        found: dict[_Key, Mapping[str, str]] = {}
        if not self._path.exists():
            return found
        try:
            check_claim(self._path, _GROWTH * self._path.stat().st_size)
            text = read_text(self._path, _MOST_BYTES, errors="replace")
            rows = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]))
            names = rows.fieldnames or ()
            if tuple(names[: len(FIRST)]) != FIRST or tuple(names[-len(LAST) :]) != LAST:
                raise csv.Error("other columns")
            for row in rows:
                if None not in row and None not in row.values() and row["epoch"].isdecimal():
                    found[row["job"], row["epoch"]] = row
        except (OSError, csv.Error):
            with suppress(OSError):  # then it is replaced, or a warning says that it cannot be
                put_in_place(self._path, self._path.with_name(f"{self._path.name}.old"))
            return {}
        self._metrics += [name for name in names[len(FIRST) : -len(LAST)] if name not in self._metrics]
        self._stale = self._stale or not text.endswith("\n")
        return found
