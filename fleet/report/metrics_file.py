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

KEY = ("job", "epoch")
_MOST_BYTES = 1 << 32
_GROWTH = 10  # of rows in memory, to what they take in the file
FIRST, LAST = ("job", "epoch", "step", "time"), ("rate", "devices")


class MetricsFile:
    """Rows by (job, epoch). A new row is appended; rows that come again or go, and new metrics, write it anew.

    An existing file is gone on with; one that is none of ours, or cannot be read, is set aside as metrics.csv.old. A
    torn last row is dropped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[tuple[str, str], dict[str, str]] = {}
        self._metrics: list[str] = []
        self._stale = False  # the file is not as it should be
        self._read()

    def put(self, row: Mapping[str, str], metrics: Mapping[str, str], values: Mapping[str, str] | None = None) -> None:
        """Write one epoch: `row` has the fixed columns, `metrics` and a trial's `values` the others."""
        named = {self._column(name): value for name, value in metrics.items()}
        for name, value in (values or {}).items():
            named[f"values.{name}" if name in metrics or name in (*FIRST, *LAST) else name] = value
        added = [name for name in named if name not in self._metrics]
        whole = {**row, **named}
        key = (row["job"], row["epoch"])
        anew = bool(added) or self._stale or key in self._rows or not self._path.exists()
        self._metrics += added
        self._rows.pop(key, None)
        self._rows[key] = whole
        self._stale = True
        if anew:
            self._write()
        else:
            self._append(whole)
        self._stale = False

    def drop(self, job: str, epoch: int) -> None:
        """Take out the rows of all epochs of a job after this one: they were taken back."""
        while self._rows.pop((job, str(epoch + 1)), None) is not None:
            self._stale, epoch = True, epoch + 1
        if self._stale:
            self._write()
            self._stale = False

    def _write(self) -> None:
        write_whole(self._path, self._text([dict(zip(self.columns, self.columns)), *self._rows.values()]))

    @property
    def columns(self) -> tuple[str, ...]:
        """job, epoch, step, time, the metrics and values as they came, rate, devices."""
        return (*FIRST, *self._metrics, *LAST)

    def _column(self, metric: str) -> str:
        return f"metrics.{metric}" if metric in (*FIRST, *LAST) else metric

    def _append(self, row: Mapping[str, str]) -> None:
        with naming(self._path), open_to_append(self._path) as file:
            file.write(self._text([row]).encode())

    def _text(self, rows: Iterable[Mapping[str, str]]) -> str:
        text = io.StringIO()
        csv.DictWriter(text, self.columns, restval="", lineterminator="\n").writerows(rows)
        return text.getvalue()

    def _read(self) -> None:
        if not self._path.exists():
            return
        try:
            check_claim(self._path, _GROWTH * self._path.stat().st_size)
            text = read_text(self._path, _MOST_BYTES, errors="replace")
            rows = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]))
            names = rows.fieldnames or ()
            if tuple(names[: len(FIRST)]) != FIRST or tuple(names[-len(LAST) :]) != LAST:
                raise csv.Error("other columns")
            for row in rows:
                if None not in row and None not in row.values():
                    self._rows[row["job"], row["epoch"]] = dict(row)
        except (OSError, csv.Error):
            self._rows.clear()
            with suppress(OSError):  # then it is replaced, or a warning says that it cannot be
                put_in_place(self._path, self._path.with_name(f"{self._path.name}.old"))
            return
        self._metrics = list(names[len(FIRST) : -len(LAST)])
        if not text.endswith("\n"):
            self._write()
