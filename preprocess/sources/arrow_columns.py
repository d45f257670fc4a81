"""Columns of Arrow tables as samples need them: numbers, texts, or the bytes of image files; one row at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from preprocess.files.memory import SMALL_BYTES, check_claim
from preprocess.samples.errors import SourceError
from preprocess.samples.layout import Array

_MEND = "make numbers, texts or image files of it, or give a map-style data set of your own: module:Name"


@dataclass(frozen=True)
class ColumnKind:
    """What a column holds.

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


def column_kind(pa: Any, name: str, kind: Any, path: str) -> ColumnKind:
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
    """What the values of a dictionary take once each stands in its rows; an upper bound where that is small."""
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
