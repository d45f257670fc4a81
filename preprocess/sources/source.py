"""Where samples come from: the protocol of a source, and the function that opens one by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, Protocol, runtime_checkable

import numpy as np

from preprocess.files.memory import check_claim
from preprocess.samples.errors import SourceError, spelling_advice
from preprocess.samples.layout import Array, Indices, SampleLayout
from preprocess.sources.arrays import open_idx, open_numpy
from preprocess.sources.arrow import open_arrow
from preprocess.sources.checked_files import refusals_named
from preprocess.sources.encoded_images import open_image_folder
from preprocess.sources.hdf5 import open_hdf5
from preprocess.sources.lmdb_file import open_lmdb
from preprocess.sources.map_style import MapStyleSource, open_map_style
from preprocess.sources.netcdf import open_netcdf
from preprocess.sources.parquet import open_parquet
from preprocess.sources.tar_shards import open_tar
from preprocess.sources.tokens import open_tokens
from preprocess.sources.zarr_store import open_zarr


@runtime_checkable
class Source(Protocol):
    """A sized collection of (input, target), read by index.

    A source of encoded images has the class attribute `encoded = True`: `read` gives the bytes of an image file, uint8
    (size,), and `layout` describes what they decode to, with -1 for a height or width that differs between samples.

    A source whose samples lie in chunks has the method `block_starts()`, which gives the first sample of each chunk,
    ascending from 0, or None. If it reads chunks whole, `chunk_bytes()` gives the bytes of all of them once they are
    read, and of those that a process keeps.

    A source that copies many samples as easily as one has `copies_many = True` and the method `copy(indices, inputs,
    targets)`, which writes them into inputs and targets of its layout, (count, ...) each.

    Attributes:
        layout: shape and dtype of every sample, before any transform.
    """

    @property
    def layout(self) -> SampleLayout: ...

    def __len__(self) -> int: ...

    def read(self, index: int) -> tuple[Array, Any]:
        """Return the input and the target of one sample; the input may be a view that is not to be written to."""
        ...


class Subset:
    """A slice of another source.

    Attributes:
        source: the other.
        indices: the indices of the samples there.
    """

    def __init__(self, source: Source, indices: range) -> None:
        self.source, self.indices = source, indices
        self.layout = source.layout
        self.encoded = bool(getattr(source, "encoded", False))
        self.copies_many = bool(getattr(source, "copies_many", False))

    def __len__(self) -> int:
        return len(self.indices)

    def read(self, index: int) -> tuple[Array, Any]:
        return self.source.read(self.indices[index])

    def copy(self, indices: Indices, inputs: Array, targets: Array) -> None:
        source: Any = self.source
        source.copy(self.indices.start + self.indices.step * indices.astype(np.int64), inputs, targets)

    def inner(self, index: int) -> tuple[Source, int]:
        """Return where a sample comes from, and its index there."""
        return self.source, self.indices[index]


def described(source: Source, index: int) -> str:
    """Return what a sample is called in messages, such as the path of its file; empty if the source has no word."""
    while isinstance(source, Subset):
        source, index = source.inner(index)
    describe = getattr(source, "describe", None)
    return str(describe(index)) if describe else ""


def built_in_sources() -> dict[str, Callable[..., Source]]:
    """Return the built-in sources: name -> function that opens one."""
    return {
        "idx": open_idx,
        "numpy": open_numpy,
        "hdf5": open_hdf5,
        "image_folder": open_image_folder,
        "tar": open_tar,
        "parquet": open_parquet,
        "arrow": open_arrow,
        "zarr": open_zarr,
        "netcdf": open_netcdf,
        "lmdb": open_lmdb,
        "tokens": open_tokens,
    }


def open_source(
    name: str | Any,
    arguments: Mapping[str, Any] | None = None,
    subset: int | Sequence[int] | None = None,
    looks: int = 1,
    seed: int = 0,
) -> Source:
    """Open a source of samples.

    Args:
        name: a built-in source's name, or `module:Name` of a class or function that gives a map-style data set, or
            such a data set itself, or a source.
        arguments: keyword arguments of the source.
        subset: how many of its first samples to keep, or [start, stop] or [start, stop, step] as in a slice.
        looks: for a map-style data set, how many samples may be tried until one shows the layout of all.
        seed: see `open_items`.

    Raises:
        SourceError: anything that a person can have got wrong: name, arguments, files, module, subset.
    """
    given = dict(arguments or {})
    source = _open(name, given, looks, seed)
    if len(source) == 0:
        raise SourceError(name, "a source needs at least one sample", "give one that is not empty")
    return source if subset is None else _take_subset(source, subset)


def _open(name: str | Any, arguments: dict[str, Any], looks: int, seed: int) -> Source:
    if isinstance(name, Source):
        return name
    if not isinstance(name, str):
        return MapStyleSource(name, type(name).__qualname__, looks)
    return open_map_style(name, arguments, looks, seed) if ":" in name else _open_built_in(name, arguments)


def _open_built_in(name: str, arguments: dict[str, Any]) -> Source:
    built_in = built_in_sources()
    if name not in built_in:
        advice = f"{spelling_advice(name, built_in)}; or module:Name of a map-style data set"
        raise SourceError(name, "no source has this name", advice)
    parameters = signature(built_in[name]).parameters
    for key in arguments:
        if key not in parameters:
            raise SourceError(key, f"source {name!r} has no such argument", spelling_advice(key, parameters))
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and key not in arguments:
            raise SourceError(arguments, f"source {name!r} needs the argument {key!r}", f"add {key}: ...")
    with refusals_named():
        source = built_in[name](**arguments)
        path = str(arguments.get("path") or next(iter(arguments.values())))
        check_claim(path, len(source) * np.dtype(np.int64).itemsize, f"the order of its {len(source)} samples")
        if not getattr(source, "encoded", False):
            check_claim(path, source.layout.input_bytes + source.layout.target_bytes, "a sample")
        return source


def _take_subset(source: Source, subset: int | Sequence[int]) -> Subset:
    parts = [subset] if isinstance(subset, int) else list(subset)
    whole = all(isinstance(part, int) for part in parts)
    if not whole or not 1 <= len(parts) <= 3 or (len(parts) == 3 and parts[2] == 0):
        raise SourceError(subset, "a subset is a number, [start, stop] or [start, stop, step]", "write subset: 1000")
    indices = range(len(source))[slice(*parts)]
    if not indices:
        raise SourceError(subset, f"it selects none of the source's {len(source)} samples", "select at least one")
    return Subset(source, indices)
