"""Tables, a sample a row: Parquet files, as pandas, Spark and Hugging Face write them, and Arrow files.

A row group of Parquet is read at once. Arrow files, among them what Hugging Face's `datasets` saved on disk, are mapped
into memory, so that a sample costs the pages that it lies on.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from preprocess.files.memory import SMALL_BYTES, check_claim
from preprocess.files.reading import NotAFile, TooLarge, read_json
from preprocess.samples.errors import SourceError, spelling_advice
from preprocess.samples.layout import Array, Indices, SampleLayout
from preprocess.sources.arrays import is_plain_image
from preprocess.sources.checked_files import (
    DamageError,
    bounded,
    damage_named,
    existing,
    file_paths,
    needed,
    try_in_time,
)
from preprocess.sources.encoded_images import check_channels, decoded_layout, label_numbers

_MEND = "make numbers, texts or image files of it, or give a map-style data set of your own: module:Name"


@dataclass(frozen=True)
class ColumnKind:
    """Kind of a column's contents.

    Attributes:
        name: its name.
        form: "numbers": numbers, or lists of them, of any depth; "text"; "file": bytes of an image file.
        dtype: NumPy's name of the numbers' dtype; "" for others.
        depth: lists around a number; 0 for a number alone.
        shape: shape of the numbers if the column's type says it; None if each row does.
    """

    name: str
    form: Literal["numbers", "text", "file"]
    dtype: str = ""
    depth: int = 0
    shape: tuple[int, ...] | None = None


def _column_kind(pa: Any, name: str, kind: Any, path: str) -> ColumnKind:
    """Return what a column of an Arrow type holds.

    Args:
        pa: the package pyarrow.
        name: the column's.
        kind: its `pyarrow.DataType`.
        path: the file, for errors.

    Raises:
        SourceError: nothing that samples are made of.
    """
    types, shape, depth, inner = pa.types, None, 0, kind
    if types.is_dictionary(inner):
        inner = inner.value_type
    if isinstance(inner, pa.BaseExtensionType):
        shape = tuple(getattr(inner, "shape", ())) or None
        inner = inner.storage_type
    if types.is_struct(inner) and inner.get_field_index("bytes") >= 0:
        inner = inner.field("bytes").type
    while types.is_list(inner) or types.is_large_list(inner) or types.is_fixed_size_list(inner):
        inner, depth = inner.value_type, depth + 1
    if types.is_integer(inner) or types.is_floating(inner) or types.is_boolean(inner):
        return ColumnKind(name, "numbers", str(np.dtype(inner.to_pandas_dtype())), depth, shape)
    if depth == 0 and (types.is_binary(inner) or types.is_large_binary(inner) or types.is_fixed_size_binary(inner)):
        return ColumnKind(name, "file")
    if depth == 0 and (types.is_string(inner) or types.is_large_string(inner)):
        return ColumnKind(name, "text")
    raise SourceError(path, f"its column {name!r} is of the type {kind}, of which no sample is made", _MEND)


class LoadedColumn:
    """A column of one chunk, in memory.

    Args:
        kind: what it holds.
        column: the rows, a `pyarrow.ChunkedArray`.
        path: the file, for errors.

    Raises:
        NeedsTooMuchMemory: its values take more than they can, or than may be taken.
    """

    def __init__(self, kind: ColumnKind, column: Any, path: str) -> None:
        self._kind = kind
        self._parts = [_plain_array(part, path) for part in column.chunks if len(part)]
        self._starts = np.cumsum([0, *map(len, self._parts)]).tolist()
        self._numbers = None
        if kind.form == "numbers" and kind.depth == 0 and not column.null_count:
            whole = [part.to_numpy(zero_copy_only=False) for part in self._parts]
            self._numbers = whole[0] if len(whole) == 1 else np.concatenate(whole) if whole else None

    def value(self, row: int) -> Any:
        """Return a row: a NumPy number or array, a text, or the bytes of a file as uint8 (size,).

        Raises:
            ValueError: it is missing (null), or its lists differ in length; without the name of row and column.
        """
        if self._numbers is not None:
            return self._numbers[row]
        number = 0
        while row >= self._starts[number + 1]:
            number += 1
        part, row = self._parts[number], row - self._starts[number]
        if part.null_count and not part[row].is_valid:
            raise ValueError("is missing (null)")
        if self._kind.form == "numbers":
            return _numbers(part.slice(row, 1), self._kind)
        if self._kind.form == "text":
            return part[row].as_py()
        return np.frombuffer(part[row].as_buffer(), np.uint8)

    def texts(self) -> set[str]:
        """Return the different texts of its rows, nulls left out."""
        return {text for part in self._parts for text in part.unique().to_pylist() if text is not None}


def _plain_array(array: Any, path: str) -> Any:
    """Without what stands around the values: dictionaries, extension types, and the struct of bytes and path."""
    kind = type(array).__name__
    if kind == "DictionaryArray":
        check_claim(path, _decoded_bytes(array), "a column whose values stand in many rows", array.nbytes)
        return _plain_array(array.dictionary_decode(), path)
    if hasattr(array, "storage"):
        return _plain_array(array.storage, path)
    if kind == "StructArray":
        return array.flatten()[array.type.get_field_index("bytes")]
    return array


def _decoded_bytes(array: Any) -> int:
    """Return the bytes of a dictionary's values once each stands in its rows; an upper bound where that is small."""
    import pyarrow.compute as pc
    from pyarrow import types

    values = array.dictionary
    most: int = values.nbytes * len(array)
    if most <= SMALL_BYTES:
        return most
    kind = values.type
    if types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind):
        sizes = pc.binary_length(values)
    elif types.is_nested(kind):
        sizes = pc.multiply(pc.list_value_length(values), 8)
    else:
        return 8 * len(array)
    return int(pc.sum(pc.take(sizes, array.indices)).as_py() or 0)


def _numbers(one: Any, kind: ColumnKind) -> Array:
    """The numbers of an array that has a single row."""
    sides = []
    for _ in range(kind.depth):
        inner = one.flatten()
        if len(inner) % max(1, len(one)) or (hasattr(one, "value_lengths") and len(one.value_lengths().unique()) > 1):
            raise ValueError("has lists of different lengths")
        sides.append(len(inner) // max(1, len(one)))
        one = inner
        if one.null_count:
            raise ValueError("has a missing number (null)")
    numbers = one.to_numpy(zero_copy_only=False).reshape(sides)
    found: Array = numbers if kind.shape is None else numbers.reshape(kind.shape)
    return found if kind.depth else found[()]


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


def _chosen_columns(pa: Any, table: Table, given: str | Sequence[str], what: str) -> list[ColumnKind]:
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
    return [_column_kind(pa, name, table.schema.field(name).type, table.path) for name in names]


_MIB = 2**20


@dataclass(frozen=True)
class TableArguments:
    """Arguments that `parquet` and `arrow` share: how samples are made of a table's columns.

    Attributes:
        inputs: the column of the input, or a list of columns of numbers, which are joined to one vector.
        targets: the same of the target; a column of texts names classes.
        shape: what the input's numbers are arranged to, such as [28, 28]; None: as the column has them.
        dtype: dtype of the input, and of a target that has fractions; None: the columns' own.
        channels: 3 or 1, of images that are decoded.
        size: (height, width) of all images; None: their headers are read until both have differed.
        classes: names of the classes by their numbers, for a target of texts; None: all that occur, sorted.
        cache: MiB of chunks that each process keeps.
    """

    inputs: str | Sequence[str]
    targets: str | Sequence[str]
    shape: Sequence[int] | None = None
    dtype: str | None = None
    channels: int = 3
    size: Sequence[int] | None = None
    classes: Sequence[str] | None = None
    cache: float = 512


class TableSource:
    """Samples i = row i of a table.

    Attributes:
        encoded: whether inputs are encoded images.
        classes: names of the classes by their numbers; None if they have none.
        target_layout: shape and dtype of every target.
        targets_are_names: whether the targets are texts that name classes.

    Args:
        rows: the rows.
        inputs, targets: the columns.
        arguments: the others.

    Raises:
        SourceError: the columns do not fit the arguments or each other.
    """

    def __init__(
        self, rows: Rows, inputs: list[ColumnKind], targets: list[ColumnKind], arguments: TableArguments
    ) -> None:
        self._rows, self._arguments = rows, arguments
        self._inputs = _Joined(rows, inputs, isinstance(arguments.inputs, str), "inputs")
        self._targets = _Joined(rows, targets, isinstance(arguments.targets, str), "targets")
        self.encoded = inputs[0].form == "file"
        self.channels = check_channels(arguments.channels)
        self._dtype = None if arguments.dtype is None else _checked_dtype(arguments.dtype)
        if self.encoded and (arguments.shape, arguments.dtype) != (None, None):
            rule = f"the column {inputs[0].name!r} holds image files, which have their own shape and dtype"
            raise SourceError(rows.table.path, rule, "leave out shape and dtype, and resize with transforms")
        if not self.encoded and arguments.size is not None:
            raise SourceError(arguments.size, "size is that of image files, and the inputs are numbers", "write shape")
        if inputs[0].form == "text":
            mend = "name a column of numbers or images; turn texts into numbers first"
            raise SourceError(inputs[0].name, f"{rows.table.path} has texts in this column", mend)
        self._sides = None if arguments.size is None else _sides(arguments.size)
        self.classes, self._numbers = _classes(rows, targets[0], arguments.classes)
        self.targets_are_names = self._numbers is not None
        self.target_layout = self._target_layout()

    @cached_property
    def layout(self) -> SampleLayout:
        """The samples'; for images without `size`, looking for it reads headers until two differ in both sides."""
        shape, dtype = self.target_layout
        if self.encoded:
            return replace(self._image_layout(), target_shape=shape, target_dtype=dtype)
        first = self._array(0)
        given = (*first.shape, 1) if is_plain_image(first.shape, first.dtype) else first.shape
        return SampleLayout(given, str(first.dtype), shape, dtype)

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, index: int) -> tuple[Array, Any]:
        target = self._target(index)
        if self.encoded:
            return self._inputs.value(index), target
        array = self._array(index)
        array = array[..., None] if is_plain_image(array.shape, array.dtype) else array
        if array.shape != self.layout.input_shape:
            rule = f"its input has the shape {array.shape}, the first one's is {self.layout.input_shape}"
            raise SourceError(self.describe(index), rule, "pad or cut the lists to one length")
        return array, target

    def describe(self, index: int) -> str:
        """Return the file of a sample, and its row there."""
        return self._rows.describe(index)

    @property
    def chunks_read(self) -> int:
        """Number of times that a chunk was read for its rows."""
        return self._rows.chunks_read

    def block_starts(self) -> Indices:
        """Return the first row of each chunk."""
        return self._rows.block_starts()

    def chunk_bytes(self) -> tuple[int, int]:
        """Return the bytes of all chunks, once they are read, and of those that a process keeps."""
        return self._rows.table.nbytes, self._rows.most_bytes

    def _array(self, index: int) -> Array:
        value = np.asarray(self._inputs.value(index), self._dtype)
        if self._arguments.shape is None:
            return value
        try:
            return value.reshape([int(side) for side in self._arguments.shape])
        except (ValueError, TypeError) as cause:
            rule = f"{self.describe(index)} has {value.size} numbers, which do not fit this shape"
            raise SourceError(list(self._arguments.shape), rule, "let the product of shape be their number") from cause

    def _target(self, index: int) -> Any:
        value = self._targets.value(index)
        if self._numbers is None:
            fractions = self._dtype is not None and np.asarray(value).dtype.kind == "f"
            return np.asarray(value, self._dtype if fractions else None)
        if value not in self._numbers:
            label_numbers([value], self.classes or (), self.describe(index))
        return np.int64(self._numbers[value])

    def _target_layout(self) -> tuple[tuple[int, ...], str]:
        if self._numbers is not None:
            return (), "int64"
        first = np.asarray(self._target(0))
        return first.shape, "int64" if first.dtype.kind in "iub" else str(first.dtype)

    def _image_layout(self) -> SampleLayout:
        if self._sides is not None:
            return SampleLayout((*self._sides, self.channels), "uint8")
        contents = (lambda index=index: self._inputs.value(index).tobytes() for index in range(len(self)))  # type: ignore[misc]
        return decoded_layout(contents, self.channels, self._rows.table.path)


class _Joined:
    """The values of one column, or those of several joined to a vector."""

    def __init__(self, rows: Rows, columns: list[ColumnKind], alone: bool, what: str) -> None:
        self._rows, self._alone = rows, alone
        self._names = [column.name for column in columns]
        if alone:
            return
        for column in columns:
            if column.form != "numbers" or column.depth > 1:
                rule = "columns that are joined hold numbers or lists of numbers, and this one does not"
                raise SourceError(column.name, rule, f"name it alone: {what}: {column.name}")

    def value(self, index: int) -> Any:
        if self._alone:
            return self._rows.value(index, self._names[0])
        return np.concatenate([np.atleast_1d(self._rows.value(index, name)) for name in self._names])


def _open_table(pa: Any, table: Table, arguments: TableArguments) -> TableSource:
    """Return the samples of a table.

    Raises:
        SourceError: it has no such columns, or they do not fit the arguments.
    """
    inputs = _chosen_columns(pa, table, arguments.inputs, "inputs")
    targets = _chosen_columns(pa, table, arguments.targets, "targets")
    if targets[0].form == "file":
        rule = f"{table.path} has bytes in this column, and a target is a number, a list of numbers or a class's name"
        raise SourceError(targets[0].name, rule, "name another column by targets")
    cache = arguments.cache
    if isinstance(cache, bool) or not isinstance(cache, (int, float)) or not cache >= 0:
        raise SourceError(cache, "cache is MiB of chunks that are kept", "write cache: 512")
    if not sum(table.rows):
        raise SourceError(table.path, "has no rows", "give a file that is not empty")
    columns = {column.name: column for column in (*inputs, *targets)}
    return TableSource(Rows(table, list(columns.values()), int(cache * _MIB)), inputs, targets, arguments)


def try_table(library: str, trial: Callable[[str], None], paths: Sequence[str], arguments: TableArguments) -> None:
    """Read a little of the first and the last file in another process, see `try_in_time`.

    Args:
        library: what reads such files, for errors.
        trial: a function of a module that makes a `TriedTable`, see `try_in_time`.
        paths: the files.
        arguments: name the columns.
    """
    given = (arguments.inputs, arguments.targets)
    names = [name for part in given for name in ([part] if isinstance(part, str) else part)]
    ends = list(dict.fromkeys([paths[0], paths[-1]]))
    try_in_time(library, trial, paths[0], paths=ends, columns=names)


class TriedTable:
    """The chunks of a table as a trial reads them, see `bounded`: each is read whole for its first row."""

    def __init__(self, table: Table, names: Sequence[str]) -> None:
        import pyarrow as pa

        self._table, self._columns = table, [_chosen_columns(pa, table, name, "")[0] for name in dict.fromkeys(names)]

    def __len__(self) -> int:
        return len(self._table.rows)

    def read(self, chunk: int) -> None:
        """Read a chunk, and its first row."""
        loaded = self._table.load(chunk, self._columns)
        if self._table.rows[chunk]:
            for column in loaded.values():
                column.value(0)


def _classes(
    rows: Rows, target: ColumnKind, given: Sequence[str] | None
) -> tuple[tuple[str, ...] | None, dict[str, int] | None]:
    """The names of the classes, and the numbers of those names if the target is a text."""
    if target.form != "text":
        if given is not None:
            raise SourceError(list(given), f"the column {target.name!r} numbers its classes", "leave out classes")
        noted = rows.table.features.get(target.name)
        names = noted.get("names") if isinstance(noted, dict) and noted.get("_type") == "ClassLabel" else None
        return (tuple(map(str, names)) if isinstance(names, list) else None), None
    found = given if given is not None else sorted(set().union(*(part.texts() for part in rows.chunks_of(target))))
    return tuple(map(str, found)), {str(name): number for number, name in enumerate(found)}


def _checked_dtype(given: str) -> np.dtype[Any]:
    try:
        dtype = np.dtype(given)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.kind not in "iufb":
        raise SourceError(given, "dtype is a number's", "write dtype: float32")
    return dtype


def _sides(size: Sequence[int]) -> tuple[int, ...]:
    sides = tuple(size) if isinstance(size, (list, tuple)) else ()
    if len(sides) != 2 or not all(type(side) is int and side > 0 for side in sides):
        raise SourceError(size, "size is the height and the width of all images", "write size: [224, 224]")
    return sides


_PARQUET_FILES = "a Parquet file, a pattern such as data/train-*.parquet, or a folder of them"
PARQUET_ENDINGS = (".parquet", ".pq")

#: What the names of files that hold a part of the data begin with.
PARTS = ("train", "test", "validation", "valid", "val")


class ParquetTable:
    """Row groups of files whose columns are alike, in the order of the files; see `Table`.

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
            with damage_named(path, "it", _errors()), _opened_parquet(path) as file:
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
        with damage_named(path, f"its row group {group}", _errors()), _opened_parquet(path) as file:
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
        """Return the part of a column that is read: of an image that has a path beside its bytes, the bytes."""
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
    paths = file_paths(path, PARQUET_ENDINGS, _PARQUET_FILES)
    if isinstance(path, str) and os.path.isdir(path):
        _refuse_parts(path, paths)
    arguments = TableArguments(inputs, targets, shape, dtype, channels, size, classes, cache)
    try_table("Parquet", try_parquet, paths, arguments)
    return _open_table(pa, ParquetTable(paths), arguments)


def try_parquet(told: str) -> None:
    """In a process of its own: open files as `_open_table` does, and read a little of them."""
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


def _opened_parquet(path: str) -> Any:
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
    """Return what Hugging Face notes of the columns."""
    try:
        noted = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
    except (LookupError, TypeError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


_ARROW_FILES = "an Arrow file, a pattern of them, or the folder that save_to_disk wrote"
ARROW_ENDINGS = (".arrow", ".feather", ".ipc")
_FILE_BEGINS = b"ARROW1"


class ArrowTable:
    """Record batches of files whose columns are alike. See `Table`.

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
        self._files = {number: _opened_arrow(path) for number, path in enumerate(paths)}
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
            self._files[number] = _opened_arrow(self._paths[number])
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
        paths = file_paths(path, ARROW_ENDINGS, _ARROW_FILES)
    arguments = TableArguments(inputs, targets, shape, dtype, channels, size, classes, cache)
    try_table("Arrow", try_arrow, paths, arguments)
    return _open_table(pa, ArrowTable(paths, features), arguments)


def try_arrow(told: str) -> None:
    """In a process of its own: open files as `_open_table` does, and read a little of them."""
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
    """Return what a JSON file says; None if there is none."""
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


def _opened_arrow(path: str) -> _RandomAccessFile | _StreamFile:
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
