"""The samples of a table: some columns are the input, one or more the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from preprocess.samples.errors import SourceError
from preprocess.samples.layout import Array, Indices, SampleLayout
from preprocess.sources.arrays import is_plain_image
from preprocess.sources.arrow_columns import ColumnKind
from preprocess.sources.checked_files import try_in_time
from preprocess.sources.encoded_images import check_channels, decoded_layout, label_numbers
from preprocess.sources.table import Rows, Table, chosen_columns

_MIB = 2**20


@dataclass(frozen=True)
class TableArguments:
    """How the samples of a table are made of its columns: the arguments that `parquet` and `arrow` share.

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
        """How often a chunk was read for its rows."""
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


def open_table(pa: Any, table: Table, arguments: TableArguments) -> TableSource:
    """Return the samples of a table.

    Raises:
        SourceError: it has no such columns, or they do not fit the arguments.
    """
    inputs = chosen_columns(pa, table, arguments.inputs, "inputs")
    targets = chosen_columns(pa, table, arguments.targets, "targets")
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


def try_table(library: str, module: str, paths: Sequence[str], arguments: TableArguments) -> None:
    """Read a little of the first and the last file in another process, see `try_in_time`.

    Args:
        library: what reads such files, for errors.
        module: has a function `try_as_told` that makes a `TriedTable`.
        paths: the files.
        arguments: name the columns.
    """
    given = (arguments.inputs, arguments.targets)
    names = [name for part in given for name in ([part] if isinstance(part, str) else part)]
    ends = list(dict.fromkeys([paths[0], paths[-1]]))
    try_in_time(library, module, paths[0], paths=ends, columns=names)


class TriedTable:
    """The chunks of a table as a trial reads them, see `bounded`: each is read whole for its first row."""

    def __init__(self, table: Table, names: Sequence[str]) -> None:
        import pyarrow as pa

        self._table, self._columns = table, [chosen_columns(pa, table, name, "")[0] for name in dict.fromkeys(names)]

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
