"""Samples that are windows of time series, as weather and climate have them, and NetCDF-4 files of them.

The first axis of every variable is time. A sample's input is some steps of one or several variables, its target a later
step. Packed values (CF: scale_factor, add_offset, _FillValue, missing_value) are unpacked.
"""

from __future__ import annotations

import math
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from preprocess.files.reading import open_file
from preprocess.samples.errors import SourceError, spelling_advice
from preprocess.samples.layout import Array, Indices, SampleLayout
from preprocess.sources.checked_files import bounded, damage_named, existing, try_in_time
from preprocess.sources.hdf5 import check_rows, refuse_elsewhere
from preprocess.sources.hdf5 import open_file as open_hdf5_file

_MIB = 2**20
MEND = "copy it anew from where it came, or write it anew"


@dataclass(frozen=True)
class WindowArguments:
    """Arguments that `zarr` and `netcdf` share: how samples are cut out of variables.

    Attributes:
        inputs, targets: names of variables, or one name.
        window: steps of an input.
        lead: steps from an input's last one to its target's first.
        target_window: steps of a target.
        stride: steps from one sample's first to the next one's.
        dtype: the type of inputs and targets; None: float32 for packed values, else the variables' own.
        fill: what missing values become; None: a sample that has some cannot be made.
        cache: MiB of chunks that each process keeps.
    """

    inputs: str | Sequence[str]
    targets: str | Sequence[str]
    window: int = 1
    lead: int = 1
    target_window: int = 1
    stride: int = 1
    dtype: str | None = None
    fill: float | None = None
    cache: float = 512


@dataclass(frozen=True)
class Packing:
    """Stored form of a variable's values: (stored * scale + offset), or missing."""

    scale: float
    offset: float
    missing: tuple[float, ...]

    @property
    def is_plain(self) -> bool:
        """Whether stored values are the values."""
        return (self.scale, self.offset) == (1.0, 0.0)


class WindowSource:
    """Windows of the variables of a file.

    Args:
        path: the file, for errors.
        opener: opens it, and returns its variables by their names: h5py or zarr arrays.
        arguments: how samples are cut.
        errors: what its library raises besides what is usual.

    Attributes:
        chunks_read: how often the chunks of some steps of a variable were read, all together.

    Raises:
        SourceError: no such variables, or they do not fit each other or the arguments.
    """

    encoded = False
    _open: Mapping[str, Any] | None

    def __init__(
        self,
        path: str,
        opener: Callable[[str, Sequence[str]], Mapping[str, Any]],
        arguments: WindowArguments,
        errors: tuple[type[Exception], ...] = (),
    ) -> None:
        self._path, self._opener, self._errors, self._given = path, opener, errors, arguments
        self.chunks_read = 0
        self._inputs, self._targets = _names(arguments.inputs, "inputs"), _names(arguments.targets, "targets")
        for name in ("window", "target_window", "stride"):
            _check_whole(name, getattr(arguments, name), 1)
        _check_whole("lead", arguments.lead, 0)
        if isinstance(arguments.cache, bool) or not isinstance(arguments.cache, (int, float)) or arguments.cache < 0:
            raise SourceError(arguments.cache, "cache is MiB of chunks that are kept", "write cache: 512")
        self._forget()
        variables = self._variables()
        for names in (self._inputs, self._targets):
            _check_alike(path, variables, names)
        steps = min(int(variables[name].shape[0]) for name in variables)
        if len({variable.shape[0] for variable in variables.values()}) > 1:
            lengths = ", ".join(f"{name}: {variable.shape[0]}" for name, variable in variables.items())
            raise SourceError(
                path, f"its variables have different numbers of steps ({lengths})", "cut them to one time"
            )
        with damage_named(path, "its attributes", errors, MEND):
            self._packings = {name: _packing(variable) for name, variable in variables.items()}
        self._dtypes = {name: self._dtype(variable, self._packings[name]) for name, variable in variables.items()}
        span = arguments.window - 1 + arguments.lead + arguments.target_window
        self._count = (steps - max(span, arguments.window)) // arguments.stride + 1
        if self._count < 1:
            rule = f"a sample spans {max(span, arguments.window)} steps, and {path} has {steps}"
            raise SourceError(span, rule, "make window, lead or target_window smaller")
        self.layout = self._layout(variables)

    def __len__(self) -> int:
        return self._count

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_open", "_kept", "_bytes")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def read(self, index: int) -> tuple[Array, Any]:
        given = self._given
        start = index * given.stride
        later = start + given.window - 1 + given.lead
        inputs = self._steps(index, self._inputs, start, given.window, False)
        return inputs, self._steps(index, self._targets, later, given.target_window, _is_one(given))

    def describe(self, index: int) -> str:
        """Return the file of a sample, and the first step of its input."""
        return f"{self._path}, from step {index * self._given.stride}"

    def block_starts(self) -> Indices | None:
        """Return the first sample that begins in each chunk of the first input; None if that has no chunks."""
        chunks = getattr(self._variables()[self._inputs[0]], "chunks", None)
        if not chunks:
            return None
        blocks = np.arange(self._count, dtype=np.int64) * self._given.stride // int(chunks[0])
        return np.flatnonzero(np.diff(blocks, prepend=-1))

    def chunk_bytes(self) -> tuple[int, int]:
        """Return the bytes of all chunks, once they are read, and of those that a process keeps."""
        variables = self._variables().values()
        read = sum(
            math.prod(one.shape) * np.dtype(one.dtype).itemsize for one in variables if getattr(one, "chunks", None)
        )
        return read, int(self._given.cache * _MIB)

    def _steps(self, index: int, names: Sequence[str], start: int, count: int, alone: bool) -> Array:
        """The steps of all these variables, step by step: (count * variables, ...); without that axis if alone."""
        parts = [self._values(index, name, start, start + count) for name in names]
        stacked = parts[0] if len(parts) == 1 else np.stack(parts, 1).reshape(-1, *parts[0].shape[1:])
        found: Array = stacked[0] if alone else stacked
        return found

    def _values(self, index: int, name: str, start: int, stop: int) -> Array:
        with damage_named(f"{self.describe(index)}", f"the variable {name!r}", self._errors, MEND):
            stored = self._stored(name, start, stop)
        packing, dtype = self._packings[name], self._dtypes[name]
        missing = np.isnan(stored) if stored.dtype.kind == "f" else np.zeros(stored.shape, bool)
        for value in packing.missing:
            missing |= stored == value
        if packing.is_plain:
            values = stored.astype(dtype)
        else:
            values = (stored.astype(np.float64) * packing.scale + packing.offset).astype(dtype)
        if missing.any():
            if self._given.fill is None:
                rule = f"{int(missing.sum())} values of {name!r} are missing"
                raise SourceError(self.describe(index), rule, "say what they become, such as fill: 0")
            values[missing] = self._given.fill
        return values

    def _stored(self, name: str, start: int, stop: int) -> Array:
        """Steps as they are stored; chunks are read whole, and kept."""
        if self._process != os.getpid():
            self._forget()
        variable = self._variables()[name]
        chunks = getattr(variable, "chunks", None)
        if not chunks:
            return np.asarray(variable[start:stop])
        length = int(chunks[0])
        blocks = [
            self._block(name, variable, block, length) for block in range(start // length, (stop - 1) // length + 1)
        ]
        whole = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
        first = start // length * length
        found = whole[start - first : stop - first]
        if len(found) != stop - start:
            raise ValueError(f"it has {len(found)} of {stop - start} steps")
        return found

    def _block(self, name: str, variable: Any, block: int, length: int) -> Array:
        key = (name, block)
        if key not in self._kept:
            array = np.asarray(variable[block * length : (block + 1) * length])
            self.chunks_read += 1
            while self._kept and self._bytes + array.nbytes > self._given.cache * _MIB:
                self._bytes -= self._kept.popitem(last=False)[1].nbytes
            self._kept[key] = array
            self._bytes += array.nbytes
        self._kept.move_to_end(key)
        return self._kept[key]

    def _variables(self) -> Mapping[str, Any]:
        if self._open is None:
            self._open = self._opener(self._path, list(dict.fromkeys([*self._inputs, *self._targets])))
        return self._open

    def _forget(self) -> None:
        self._open = None
        self._kept: OrderedDict[tuple[str, int], Array] = OrderedDict()
        self._bytes, self._process = 0, os.getpid()

    def _dtype(self, variable: Any, packing: Packing) -> np.dtype[Any]:
        if self._given.dtype is not None:
            try:
                dtype = np.dtype(self._given.dtype)
            except TypeError:
                dtype = np.dtype(object)
            if dtype.kind not in "iuf":
                raise SourceError(self._given.dtype, "dtype is a number's", "write dtype: float32")
            return dtype
        stored = np.dtype(variable.dtype).newbyteorder("=")
        return stored if packing.is_plain else np.dtype(np.float32)

    def _layout(self, variables: Mapping[str, Any]) -> SampleLayout:
        given = self._given
        step, target_step = variables[self._inputs[0]].shape[1:], variables[self._targets[0]].shape[1:]
        shape = (given.window * len(self._inputs), *step)
        target = target_step if _is_one(given) else (given.target_window * len(self._targets), *target_step)
        dtype = np.result_type(*(self._dtypes[name] for name in self._inputs))
        target_dtype = np.result_type(*(self._dtypes[name] for name in self._targets))
        whole = target_dtype.kind in "iub"
        return SampleLayout(shape, str(dtype), tuple(target), "int64" if whole else str(target_dtype))


def _is_one(given: WindowArguments) -> bool:
    """Whether a target is one step of one variable, and has that step's shape."""
    return isinstance(given.targets, str) and given.target_window == 1


def _names(given: str | Sequence[str], what: str) -> list[str]:
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) and name for name in names):
        raise SourceError(given, f"{what} names a variable, or a list of them", f"write {what}: NAME")
    return list(names)


def _check_whole(name: str, value: Any, least: int) -> None:
    if type(value) is not int or value < least:
        raise SourceError(
            value, f"{name} is a whole number of steps, {least} or more", f"write {name}: {max(least, 1)}"
        )


def _check_alike(path: str, variables: Mapping[str, Any], names: Sequence[str]) -> None:
    """Refuse variables that are no numbers in time, or cannot be put together."""
    for name in names:
        variable = variables[name]
        if np.dtype(variable.dtype).kind not in "iufb":
            raise SourceError(name, f"{path} has {variable.dtype} in this variable", "name variables of numbers")
        if not variable.shape:
            raise SourceError(name, f"this variable of {path} is one number, and has no steps", "name another variable")
        if variable.shape[1:] != variables[names[0]].shape[1:]:
            rule = f"a step of it is {variable.shape[1:]}, one of {names[0]!r} is {variables[names[0]].shape[1:]}"
            raise SourceError(name, rule, "put variables of one grid together")


def _packing(variable: Any) -> Packing:
    attributes = dict(variable.attrs)
    number = lambda name, default: float(np.asarray(attributes.get(name, default)).reshape(-1)[0])
    missing = [
        value
        for name in ("_FillValue", "missing_value")
        if name in attributes
        for value in np.asarray(attributes[name]).reshape(-1).tolist()
    ]
    kept = tuple(float(value) for value in missing if isinstance(value, (int, float)) and value == value)
    return Packing(number("scale_factor", 1.0), number("add_offset", 0.0), kept)


def open_netcdf(
    path: str,
    inputs: str | Sequence[str],
    targets: str | Sequence[str],
    window: int = 1,
    lead: int = 1,
    target_window: int = 1,
    stride: int = 1,
    dtype: str | None = None,
    fill: float | None = None,
    cache: float = 512,
) -> WindowSource:
    """Open a NetCDF-4 file.

    Args:
        path: the file.
        inputs, targets, window, lead, target_window, stride, dtype, fill, cache: see `WindowArguments`; a variable in
            a group is called GROUP/NAME.

    Raises:
        SourceError: the file is missing, damaged or of another format, or the arguments do not fit it.
    """
    _refuse_classic(path)
    given: dict[str, Any] = {
        "window": window,
        "lead": lead,
        "target_window": target_window,
        "stride": stride,
        "dtype": dtype,
    }
    given |= {"inputs": inputs, "targets": targets, "fill": fill, "cache": cache}
    try_in_time("HDF5", try_netcdf, str(existing(path)), **given)
    return _opened(path, **given)


def try_netcdf(told: str) -> None:
    """Open a file with `open_netcdf`'s arguments, as JSON, in a process of its own, and read a little of it."""
    bounded(_opened, told)


def _opened(path: str, **given: Any) -> WindowSource:
    return WindowSource(str(path), _variables, WindowArguments(**given))


def _refuse_classic(path: str) -> None:
    with open_file(existing(path)) as file:
        if file.read(3) == b"CDF":
            rule = "is a NetCDF file of the classic format, and only NetCDF-4 is read"
            raise SourceError(path, rule, f"convert it: nccopy -k netCDF-4 {path} new.nc")


def _variables(path: str, names: Sequence[str]) -> Mapping[str, Any]:
    import h5py

    file = open_hdf5_file(path)
    with damage_named(path, "it", mend=MEND):
        refuse_elsewhere(path, file, "copy the variables into one file", *names)
        for name in names:
            if not isinstance(file.get(name), h5py.Dataset):
                known = [key for key in file if isinstance(file.get(key), h5py.Dataset)]
                raise SourceError(name, f"{path} holds no such variable", spelling_advice(name, known))
            check_rows(path, file[name], file[name].chunks[0] if file[name].chunks else 1)
        return {name: file[name] for name in names}
