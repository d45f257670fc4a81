"""Parquet files, as pandas, Spark and Hugging Face write them: a sample is a row, and a row group is read at once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from preprocess.files.memory import SMALL_BYTES, check_claim
from preprocess.samples.errors import SourceError
from preprocess.sources.arrays import existing
from preprocess.sources.arrow_columns import ColumnKind, LoadedColumn
from preprocess.sources.checked_files import DamageError, bounded, damage_named, needed
from preprocess.sources.file_paths import file_paths
from preprocess.sources.table_source import TableArguments, TableSource, TriedTable, open_table, try_table

_WHAT = "a Parquet file, a pattern such as data/train-*.parquet, or a folder of them"
PARQUET_ENDINGS = (".parquet", ".pq")

#: What the names of files that hold a part of the data begin with.
PARTS = ("train", "test", "validation", "valid", "val")


class ParquetTable:
    """Row groups of files whose columns are alike, in the order of the files. See `preprocess.sources.table.Table`.

    Args:
        paths: the files.

    Raises:
        SourceError: one is no Parquet file, or has other columns than the first.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.path, self._paths = (paths[0] if len(paths) == 1 else os.path.commonpath(paths) or paths[0]), tuple(paths)
        self.schema: Any = None
        self.nbytes = 0
        rows: list[int] = []
        self._places: list[tuple[int, int]] = []
        for number, path in enumerate(paths):
            with damage_named(path, "it", _errors()), _opened(path) as file:
                self._check_columns(path, file.schema_arrow)
                found = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
                groups = [group.num_rows for group in found]
                self.nbytes += sum(group.total_byte_size for group in found)  # of all columns: at most what is read
            rows += groups
            self._places += [(number, group) for group in range(len(groups))]
        self.rows: Sequence[int] = rows
        self.features: Mapping[str, Any] = _features(getattr(self.schema, "metadata", None))

    def load(self, chunk: int, columns: Sequence[ColumnKind]) -> dict[str, LoadedColumn]:
        number, group = self._places[chunk]
        path = self._paths[number]
        names = [self._leaf(column.name) for column in columns]
        with damage_named(path, f"its row group {group}", _errors()), _opened(path) as file:
            found = _read(path, file, group, names)
            found.validate(full=True)
        if len(found) != self.rows[chunk]:
            rule = f"its row group {group} has {len(found)} rows, and {self.rows[chunk]} are noted of it"
            raise DamageError(path, rule, "write the file anew; if it was changed meanwhile, begin again")
        with damage_named(path, f"its row group {group}", _errors()):
            return {column.name: LoadedColumn(column, found.column(column.name), path) for column in columns}

    def file_of(self, chunk: int) -> tuple[str, int]:
        number, group = self._places[chunk]
        return self._paths[number], sum(self.rows[chunk - group : chunk])

    def _leaf(self, name: str) -> str:
        """What to read of a column: of an image that has a path beside its bytes, the bytes."""
        kind = self.schema.field(name).type
        return f"{name}.bytes" if hasattr(kind, "get_field_index") and kind.get_field_index("bytes") >= 0 else name

    def _check_columns(self, path: str, schema: Any) -> None:
        if self.schema is None:
            self.schema = schema
        elif not self.schema.remove_metadata().equals(schema.remove_metadata()):
            first = self._paths[0]
            there = set(map(str, self.schema)) ^ set(map(str, schema))
            rule = (
                f"its columns are not those of {first}: {', '.join(sorted(there)[:4]) or 'they stand in another order'}"
            )
            raise SourceError(path, rule, "give files whose columns are alike")


def open_parquet(
    path: str | Sequence[str],
    inputs: str | Sequence[str],
    targets: str | Sequence[str],
    shape: Sequence[int] | None = None,
    dtype: str | None = None,
    channels: int = 3,
    size: Sequence[int] | None = None,
    classes: Sequence[str] | None = None,
    cache: float = 512,
) -> TableSource:
    """Open Parquet files; what lies in them is found from their footers alone, and a row group is read when needed.

    Args:
        path: a file, a folder of files, a pattern, or a list of these.
        inputs, targets, shape, dtype, channels, size, classes, cache: see `TableArguments`.

    Raises:
        SourceError: pyarrow is not installed, there are no such files or columns, or they do not fit the arguments.
    """
    pa = needed("pyarrow", "pyarrow", "parquet", "Parquet files")
    needed("pyarrow.parquet", "pyarrow", "parquet", "Parquet files")
    paths = file_paths(path, PARQUET_ENDINGS, _WHAT)
    if isinstance(path, str) and os.path.isdir(path):
        _refuse_parts(path, paths)
    arguments = TableArguments(inputs, targets, shape, dtype, channels, size, classes, cache)
    try_table("Parquet", __name__, paths, arguments)
    return open_table(pa, ParquetTable(paths), arguments)


def try_as_told(told: str) -> None:
    """In a process of its own: open files as `open_table` does, and read a little of them."""
    bounded(lambda path, paths, columns: TriedTable(ParquetTable(paths), columns), told)


def parts_of(paths: Sequence[str]) -> dict[str, list[str]]:
    """Return the files by the part of the data that they hold, if their names begin with it: train-00000-of-00002."""
    part = lambda path: os.path.basename(path).lower().replace("_", "-").replace(".", "-").partition("-")[0]
    return {name: list(files) for name, files in groupby(sorted(paths, key=lambda path: (part(path), path)), part)}


def _refuse_parts(folder: str, paths: Sequence[str]) -> None:
    """Training on the test samples too is never meant."""
    parts = [name for name in parts_of(paths) if name in PARTS]
    if len(parts) > 1:
        rule = f"its files are parts of the data: {', '.join(parts)}"
        raise SourceError(folder, rule, f"give one of them, such as path: {os.path.join(folder, parts[-1])}*.parquet")


def _opened(path: str) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(existing(path), memory_map=False, pre_buffer=False)


def _read(path: str, file: Any, group: int, names: Sequence[str]) -> Any:
    """Read columns of a row group; in pieces, if its values may be many times what it has in the file.

    Raises:
        NeedsTooMuchMemory: they take more than they can in so small a file, or than may be taken.
    """
    import pyarrow as pa

    noted = file.metadata.row_group(group)
    columns = [noted.column(number) for number in range(noted.num_columns)]
    columns = [each for each in columns if any(f"{each.path_in_schema}.".startswith(f"{name}.") for name in names)]
    stored = min(sum(each.total_compressed_size for each in columns), os.stat(path).st_size)
    what = f"its row group {group}"
    fixed = {"INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BOOLEAN": 1}
    check_claim(path, sum(each.num_values * fixed.get(each.physical_type, 0) for each in columns), what, stored)
    check_claim(path, noted.num_rows, what, stored)
    longest = max((each.total_uncompressed_size for each in columns if each.physical_type not in fixed), default=0)
    if longest * noted.num_rows <= SMALL_BYTES:
        return file.read_row_group(group, columns=names, use_threads=False)
    parts, taken = [], 0  # each text may be as long as the column is in the file: a dictionary's longest
    rows = max(1, SMALL_BYTES // (8 * longest))
    for part in file.iter_batches(rows, [group], columns=names, use_threads=False):
        parts.append(part)
        taken += part.nbytes
        check_claim(path, taken, what, stored)
    return pa.Table.from_batches(parts, schema=parts[0].schema if parts else None)


def _errors() -> tuple[type[Exception], ...]:
    import pyarrow as pa

    return (pa.ArrowException,)


def _features(metadata: Mapping[bytes, bytes] | None) -> Mapping[str, Any]:
    """What Hugging Face notes of the columns."""
    try:
        noted = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
    except (LookupError, TypeError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}
