"""Arrow files: data sets that Hugging Face's `datasets` saved on disk, and plain Arrow IPC and Feather files.

They are mapped into memory, so that a sample costs the pages that it lies on. A record batch is a chunk.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from preprocess.files.reading import NotAFile, TooLarge, read_json
from preprocess.samples.errors import SourceError, spelling_advice
from preprocess.sources.arrays import existing
from preprocess.sources.arrow_columns import ColumnKind, LoadedColumn
from preprocess.sources.checked_files import DamageError, bounded, damage_named, needed
from preprocess.sources.file_paths import file_paths
from preprocess.sources.table_source import TableArguments, TableSource, TriedTable, open_table, try_table

_WHAT = "an Arrow file, a pattern of them, or the folder that save_to_disk wrote"
ARROW_ENDINGS = (".arrow", ".feather", ".ipc")
_FILE_BEGINS = b"ARROW1"


class ArrowTable:
    """Record batches of files whose columns are alike. See `preprocess.sources.table.Table`.

    Args:
        paths: the files.
        features: what Hugging Face notes of the columns.

    Raises:
        SourceError: one is no Arrow file, or has other columns than the first.
    """

    nbytes = 0

    def __init__(self, paths: Sequence[str], features: Mapping[str, Any]) -> None:
        self.path, self.features, self._paths = paths[0], features, tuple(paths)
        rows: list[int] = []
        self._places: list[tuple[int, int]] = []
        self._files = {number: _opened(path) for number, path in enumerate(paths)}
        self.schema = self._files[0].schema
        for number, path in enumerate(paths):
            file = self._files[number]
            if not self.schema.remove_metadata().equals(file.schema.remove_metadata()):
                raise SourceError(
                    path, f"its columns are not those of {paths[0]}", "give files whose columns are alike"
                )
            rows += file.rows
            self._places += [(number, batch) for batch in range(len(file.rows))]
        self.rows: Sequence[int] = rows

    def load(self, chunk: int, columns: Sequence[ColumnKind]) -> dict[str, LoadedColumn]:
        import pyarrow as pa

        number, place = self._places[chunk]
        if number not in self._files:
            self._files[number] = _opened(self._paths[number])
        with damage_named(self._paths[number], f"its record batch {place}", (pa.ArrowException,)):
            batch = self._files[number].batch(place).select([column.name for column in columns])
            batch.validate(full=True)  # offsets that point elsewhere would be followed
            if len(batch) != self.rows[chunk]:
                rule = f"its record batch {place} has {len(batch)} rows, and had {self.rows[chunk]}"
                raise DamageError(self._paths[number], rule, "begin again: it was changed meanwhile")
            path = self._paths[number]
            return {
                column.name: LoadedColumn(column, pa.chunked_array([batch.column(column.name)]), path)
                for column in columns
            }

    def file_of(self, chunk: int) -> tuple[str, int]:
        number, place = self._places[chunk]
        return self._paths[number], sum(self.rows[chunk - place : chunk])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_files": {}}  # another process maps them itself


class _RandomAccessFile:
    """A file in Arrow's file format, whose end tells where its batches lie."""

    def __init__(self, pa: Any, mapped: Any) -> None:
        self._reader = pa.ipc.open_file(mapped)
        self.schema = self._reader.schema
        self.rows = [self._reader.get_batch(place).num_rows for place in range(self._reader.num_record_batches)]

    def batch(self, place: int) -> Any:
        """Return a record batch."""
        return self._reader.get_batch(place)


class _StreamFile:
    """A file in Arrow's stream format, as `datasets` writes it: its batches are found one after the other."""

    def __init__(self, pa: Any, mapped: Any, path: str) -> None:
        self._pa, self._mapped = pa, mapped
        self.schema = pa.ipc.read_schema(mapped)
        if any(pa.types.is_dictionary(kind) for kind in self.schema.types):
            rule = "is a stream with columns of categories, in which no row is found alone"
            raise SourceError(path, rule, "write it as a file: pyarrow.ipc.new_file, or as Parquet")
        self._places: list[int] = []
        self.rows: list[int] = []
        while (place := mapped.tell()) < mapped.size():
            head = mapped.read(8)
            if bytes(4) in (head[:4], head[4:]):
                break  # the mark of the end, as it is or once was
            self._places.append(place)
            self.rows.append(self.batch(len(self.rows)).num_rows)

    def batch(self, place: int) -> Any:
        """Return a record batch; the mapped file then stands behind it."""
        self._mapped.seek(self._places[place])
        return self._pa.ipc.read_record_batch(self._pa.ipc.read_message(self._mapped), self.schema)


def open_arrow(
    path: str | Sequence[str],
    inputs: str | Sequence[str],
    targets: str | Sequence[str],
    split: str | None = None,
    shape: Sequence[int] | None = None,
    dtype: str | None = None,
    channels: int = 3,
    size: Sequence[int] | None = None,
    classes: Sequence[str] | None = None,
    cache: float = 512,
) -> TableSource:
    """Open a folder that `save_to_disk` wrote, or Arrow IPC or Feather files.

    Args:
        path: the folder, a file, a pattern, or a list of files.
        split: which part is read of a folder that has several.
        inputs, targets, shape, dtype, channels, size, classes, cache: see `TableArguments`.

    Raises:
        SourceError: pyarrow is not installed, there are no such files or columns, or they do not fit the arguments.
    """
    pa = needed("pyarrow", "pyarrow", "parquet", "Arrow files")
    features: Mapping[str, Any] = {}
    if isinstance(path, str) and os.path.isdir(path) and (saved := saved_folder(path, split)) is not None:
        paths, features = saved
    elif split is not None:
        raise SourceError(split, f"{path} is not a folder of several parts that save_to_disk wrote", "leave out split")
    else:
        paths = file_paths(path, ARROW_ENDINGS, _WHAT)
    arguments = TableArguments(inputs, targets, shape, dtype, channels, size, classes, cache)
    try_table("Arrow", __name__, paths, arguments)
    return open_table(pa, ArrowTable(paths, features), arguments)


def try_as_told(told: str) -> None:
    """In a process of its own: open files as `open_table` does, and read a little of them."""
    bounded(lambda path, paths, columns: TriedTable(ArrowTable(paths, {}), columns), told)


def saved_splits(folder: str) -> list[str] | None:
    """Return the parts of a folder that `DatasetDict.save_to_disk` wrote; None if it is none."""
    noted = _noted(Path(folder) / "dataset_dict.json")
    splits = None if noted is None else noted.get("splits")
    return None if splits is None else [str(name) for name in splits] if isinstance(splits, list) else []


def saved_folder(path: str, split: str | None) -> tuple[list[str], Mapping[str, Any]] | None:
    """Return the files of a folder that save_to_disk wrote, and the features of its columns; None if it is none.

    Raises:
        SourceError: it has no such part, or does not say what it should.
    """
    splits = saved_splits(path)
    if splits is not None:
        if split not in splits:
            rule = f"{path} has several parts" if split is None else f"{path} has no such part"
            advice = spelling_advice(str(split), splits) if split is not None else f"add split: {' or '.join(splits)}"
            raise SourceError(split, rule, advice)
        path = os.path.join(path, str(split))
    elif split is not None:
        raise SourceError(split, f"{path} has no dataset_dict.json, so it is a single part", "leave out split")
    state = _noted(Path(path) / "state.json")
    if state is None:
        if splits is not None:
            raise SourceError(path, "has no state.json", "save the data set anew: save_to_disk")
        return None
    if state.get("_indices_files") or state.get("_indices_data_files"):
        rule = "its rows are chosen by a file of indices, which is not read"
        raise SourceError(path, rule, "save it anew: dataset.flatten_indices().save_to_disk(...)")
    files = state.get("_data_files")
    names: list[Any] = (
        [file.get("filename") for file in files if isinstance(file, dict)] if isinstance(files, list) else []
    )
    if not names or not all(isinstance(name, str) and os.path.basename(name) == name for name in names):
        raise SourceError(path, "its state.json names no files in this folder", "save the data set anew: save_to_disk")
    info = _noted(Path(path) / "dataset_info.json") or {}
    features = info.get("features")
    return [os.path.join(path, name) for name in names], features if isinstance(features, dict) else {}


def _noted(path: Path) -> dict[str, Any] | None:
    """What a JSON file says; None if there is none."""
    if not path.exists():
        return None
    try:
        noted = read_json(path)
    except (NotAFile, TooLarge):
        raise
    except (OSError, ValueError) as cause:
        raise DamageError(str(path), f"it cannot be read ({cause})", "save the data set anew: save_to_disk") from cause
    if not isinstance(noted, dict):
        raise DamageError(str(path), "it does not hold names and values", "save the data set anew: save_to_disk")
    return noted


def _opened(path: str) -> _RandomAccessFile | _StreamFile:
    import pyarrow as pa

    if not os.path.exists(path):
        raise SourceError(path, "there is no such file", "copy the data set whole, or save it anew")
    existing(path)
    with damage_named(path, "it", (pa.ArrowException,), "give an Arrow IPC or Feather file that is whole"):
        if os.path.getsize(path) == 0:
            raise DamageError(path, "it is empty", "copy it anew from where it came")
        mapped = pa.memory_map(path)
        begins = mapped.read(len(_FILE_BEGINS))
        mapped.seek(0)
        return _RandomAccessFile(pa, mapped) if begins == _FILE_BEGINS else _StreamFile(pa, mapped, path)
