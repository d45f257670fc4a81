"""Files of token ids, mapped into memory."""

from __future__ import annotations

import os

import numpy as np

from preprocess.files.reading import open_file
from preprocess.samples.errors import SourceError, spelling_advice
from preprocess.samples.layout import Array
from preprocess.sources.arrays import existing, open_array

_NPY = b"\x93NUMPY"

#: dtype of the ids in a file -> as small a one in which samples carry them; bytes alone would be taken for pictures.
_CARRIED = {
    "uint8": "uint16",
    "int8": "uint16",
    "uint16": "uint16",
    "int16": "uint16",
    "uint32": "uint32",
    "int32": "uint32",
    "uint64": "int64",
    "int64": "int64",
}


def mapped_ids(path: str, dtype: str | None) -> Array:
    """Map a file of ids, (n,): an .npy file, which says its dtype, or a raw one, whose dtype is given.

    Raises:
        SourceError: it holds no whole numbers, or is of another shape, size or dtype than it should be.
    """
    if dtype is not None and dtype not in _CARRIED:
        raise SourceError(dtype, "is no dtype of token ids", spelling_advice(str(dtype), _CARRIED))
    with open_file(existing(path)) as file:
        is_npy = file.read(len(_NPY)) == _NPY
    ids = open_array(path) if is_npy else _raw(path, dtype)
    if ids.ndim != 1 or ids.dtype.name not in _CARRIED:
        rule = f"holds {ids.dtype.name} of shape {ids.shape}, and token ids are whole numbers in one row"
        raise SourceError(path, rule, "save them anew as np.save(path, ids.reshape(-1).astype(np.uint16))")
    if dtype is not None and ids.dtype.name != dtype:
        raise SourceError(dtype, f"{path} says itself that it holds {ids.dtype.name}", "leave out dtype")
    return ids


def carried_dtype(files: list[Array]) -> np.dtype[np.generic]:
    """Return the dtype in which samples carry the ids of all these files."""
    return np.result_type(*{_CARRIED[ids.dtype.name] for ids in files})


def _raw(path: str, dtype: str | None) -> Array:
    if dtype is None:
        rule = "is no .npy file, and a raw file does not say what its numbers are"
        raise SourceError(path, rule, "add dtype: uint16, or what it was written as")
    little = np.dtype(dtype).newbyteorder("<")
    with open_file(path) as file:
        size, item = os.fstat(file.fileno()).st_size, little.itemsize
        if size % item:
            rule = f"has {size} bytes, which are no whole number of {dtype}, {item} bytes each"
            raise SourceError(path, rule, "mend dtype, or copy the file anew")
        return np.memmap(file, little, mode="r") if size else np.empty(0, little)
