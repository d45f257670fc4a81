"""Whether the chunks of a Zarr array are whole: of one that is cut off, Blosc unpacks what lies behind it in memory."""

from __future__ import annotations

import itertools
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from preprocess.sources.damage import DamageError

_HEADER = struct.Struct("<12xI")  # of Blosc: its own size, header included, stands at byte 12
_MEND = "copy it anew from where it came, or write it anew"


class CheckedArray:
    """A Zarr array whose chunks are looked at before they are unpacked, if Blosc packed them.

    Attributes:
        shape, dtype, chunks, attrs: the array's.

    Args:
        array: the opened array.
        folder: where it lies.
    """

    def __init__(self, array: Any, folder: Path) -> None:
        self._array, self._folder = array, folder
        self.shape, self.dtype, self.chunks, self.attrs = array.shape, array.dtype, array.chunks, array.attrs
        self._prefix, self._separator = _names_of_chunks(folder)

    def __getitem__(self, steps: slice) -> Any:
        """Read these steps. Raises DamageError for a chunk that is cut off."""
        if self._separator is not None:
            for coordinates in self._coordinates(steps):
                name = self._separator.join(map(str, coordinates))
                _check(self._folder / f"{self._prefix}{name}")
        return self._array[steps]

    def _coordinates(self, steps: slice) -> Iterator[tuple[int, ...]]:
        """The places of the chunks in which these steps lie."""
        stop = min(steps.stop, self.shape[0])
        sides = [range(-(-length // chunk)) for length, chunk in zip(self.shape[1:], self.chunks[1:])]
        first = range(steps.start // self.chunks[0], -(-stop // self.chunks[0]))
        return itertools.product(first, *sides)


def _check(chunk: Path) -> None:
    try:
        with open(chunk, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            header = file.read(_HEADER.size)
    except FileNotFoundError:
        return  # it holds the fill value alone
    if len(header) < _HEADER.size or _HEADER.unpack(header)[0] != size:
        told = f"{_HEADER.unpack(header)[0]} bytes" if len(header) == _HEADER.size else "a header"
        raise DamageError(str(chunk), f"has {size} bytes, and should have {told}", _MEND)


def _names_of_chunks(folder: Path) -> tuple[str, str | None]:
    """What the names of the chunks begin with, and what parts their numbers; None if Blosc did not pack them."""
    newer = folder / "zarr.json"
    noted = json.loads((newer if newer.is_file() else folder / ".zarray").read_bytes())
    if not newer.is_file():
        packed = (noted.get("compressor") or {}).get("id") == "blosc"
        return "", str(noted.get("dimension_separator") or ".") if packed else None
    if not noted.get("codecs") or noted["codecs"][-1].get("name") not in ("blosc", "numcodecs.blosc"):
        return "", None
    keys = noted.get("chunk_key_encoding") or {}
    older = keys.get("name") == "v2"
    separator = (keys.get("configuration") or {}).get("separator") or ("." if older else "/")
    return ("" if older else f"c{separator}"), str(separator)
