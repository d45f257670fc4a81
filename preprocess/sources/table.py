"""Tables of samples, one a row, that lie in chunks: what `parquet` and `arrow` have in common."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from preprocess.samples.errors import SourceError, spelling_advice
from preprocess.samples.layout import Indices
from preprocess.sources.arrow_columns import ColumnKind, LoadedColumn, column_kind

#: Chunks that are kept at most, however small they are.
_MOST_CHUNKS = 4096

NULL_MEND = "mend or drop such rows, or train without them: on_corrupt: skip"


class Table(Protocol):
    """Files of rows, in chunks that are read whole.

    Attributes:
        path: what errors call it.
        schema: the columns, a `pyarrow.Schema`.
        rows: how many each chunk has.
        features: what Hugging Face notes of the columns, by their names; empty if it notes nothing.
        nbytes: what all chunks take once they are read; 0 for what is mapped from files.
    """

    path: str
    schema: Any
    rows: Sequence[int]
    features: Mapping[str, Any]
    nbytes: int

    def load(self, chunk: int, columns: Sequence[ColumnKind]) -> dict[str, LoadedColumn]:
        """Read these columns of a chunk. Raises DamageError."""
        ...

    def file_of(self, chunk: int) -> tuple[str, int]:
        """Return the file of a chunk, and which row of the file is the chunk's first."""
        ...


class Rows:
    """The rows of a table, of which the chunks that were read last are kept. A forked or spawned process keeps its own.

    Args:
        table: the table.
        columns: which ones are read.
        most_bytes: memory of the chunks that are kept; the last one is, whatever its size.

    Attributes:
        most_bytes: the same.
        chunks_read: how often a chunk was read for its rows.
    """

    def __init__(self, table: Table, columns: Sequence[ColumnKind], most_bytes: int) -> None:
        self.table, self.columns, self.most_bytes = table, tuple(columns), most_bytes
        self.chunks_read = 0
        self._starts = np.cumsum([0, *table.rows])
        self._forget()

    def __len__(self) -> int:
        return int(self._starts[-1])

    def block_starts(self) -> Indices:
        """Return the first row of each chunk that has any."""
        return np.unique(self._starts[:-1][np.diff(self._starts) > 0])

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_kept", "_bytes", "_process")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def value(self, index: int, name: str) -> Any:
        """Return what a row has in a column, see `LoadedColumn.value`.

        Raises:
            SourceError: nothing, or no regular array.
            DamageError: the chunk cannot be read.
        """
        chunk = int(np.searchsorted(self._starts, index, "right")) - 1
        try:
            return self._chunk(chunk)[name].value(index - int(self._starts[chunk]))
        except ValueError as cause:
            if isinstance(cause, SourceError):
                raise
            raise SourceError(self.describe(index), f"its {name!r} {cause}", NULL_MEND) from cause

    def describe(self, index: int) -> str:
        """Return the file of a row, and its number there."""
        chunk = int(np.searchsorted(self._starts, index, "right")) - 1
        file, first = self.table.file_of(chunk)
        return f"{file}, row {index - int(self._starts[chunk]) + first}"

    def chunks_of(self, column: ColumnKind) -> Iterator[LoadedColumn]:
        """Read one column from end to end; nothing is kept."""
        for chunk in range(len(self.table.rows)):
            yield self.table.load(chunk, [column])[column.name]

    def _forget(self) -> None:
        self._kept: OrderedDict[int, tuple[dict[str, LoadedColumn], int]] = OrderedDict()
        self._bytes, self._process = 0, os.getpid()

    def _chunk(self, chunk: int) -> dict[str, LoadedColumn]:
        if self._process != os.getpid():
            self._forget()
        if chunk not in self._kept:
            before = _allocated()
            loaded = self.table.load(chunk, self.columns)
            self.chunks_read += 1
            size = max(0, _allocated() - before)  # nothing for what is mapped from a file
            while self._kept and (self._bytes + size > self.most_bytes or len(self._kept) >= _MOST_CHUNKS):
                self._bytes -= self._kept.popitem(last=False)[1][1]
            self._kept[chunk] = loaded, size
            self._bytes += size
        self._kept.move_to_end(chunk)
        return self._kept[chunk][0]


def _allocated() -> int:
    import pyarrow as pa  # whoever opened the table has seen that it is there

    return int(pa.total_allocated_bytes())


def chosen_columns(pa: Any, table: Table, given: str | Sequence[str], what: str) -> list[ColumnKind]:
    """Return the columns that an argument names.

    Raises:
        SourceError: the table has no such column, or more than one, or nothing that samples are made of is in it.
    """
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) for name in names):
        raise SourceError(given, f"{what} names a column, or a list of them", f"write {what}: {table.schema.names[:1]}")
    for name in names:
        count = table.schema.names.count(name)
        if count != 1:
            rule = f"{table.path} has {'no such column' if not count else f'{count} columns of this name'}"
            raise SourceError(name, rule, f"name a column by {what}: {spelling_advice(name, table.schema.names)}")
    return [column_kind(pa, name, table.schema.field(name).type, table.path) for name in names]
