"""LMDB files of encoded images or arrays: a value is an image file or an .npy file, and its key holds a number.

The library lets a process open a file once, and no forked process use it. So each read opens the file, and closes it
again: that takes some tens of microseconds, and processes share nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from preprocess.samples.errors import SourceError
from preprocess.samples.layout import Array, SampleLayout
from preprocess.sources.arrays import is_plain_image, open_array
from preprocess.sources.checked_files import bounded, damage_named, existing, needed, try_in_time
from preprocess.sources.encoded_images import check_channels, decoded_layout, label_numbers
from preprocess.sources.tar_shards import array_of, target_array, value_of

_NPY = b"\x93NUMPY"
_MEND = "copy it anew from where it came, or write it anew"


class LmdbSource:
    """Samples in the order of the numbers in their keys.

    Attributes:
        encoded: whether inputs are encoded images.
        classes: names of the classes by their numbers; None if they have none.
        channels: channels of decoded images.
        target_layout: shape and dtype of every target.
    """

    def __init__(self, path: str, inputs: str, targets: str, channels: int, classes: Sequence[str] | None) -> None:
        self._path, self._inputs, self._targets = path, _pattern(inputs, "inputs"), str(targets)
        self.channels = check_channels(channels)
        self._numbers = self._found_numbers()
        first = self._value(self._key(self._inputs, 0))
        self.encoded = not first.startswith(_NPY)
        self._from_file = "{}" not in self._targets
        self.classes: tuple[str, ...] | None = None
        self._kept = self._kept_targets(classes)
        target = np.asarray(self._target(0))
        self.target_layout = target.shape, "int64" if target.dtype.kind in "iub" else str(target.dtype)

    @cached_property
    def layout(self) -> SampleLayout:
        """The samples'; looking for that of images reads them until two differ in height and width."""
        shape, dtype = self.target_layout
        if not self.encoded:
            first = self._input(0)
            return SampleLayout(first.shape, str(first.dtype), shape, dtype)
        keys = (self._key(self._inputs, index) for index in range(len(self)))
        contents = (lambda key=key: self._value(key) for key in keys)  # type: ignore[misc]
        return replace(decoded_layout(contents, self.channels, self._path), target_shape=shape, target_dtype=dtype)

    def __len__(self) -> int:
        return len(self._numbers)

    def read(self, index: int) -> tuple[Array, Any]:
        return self._input(index), self._target(index)

    def describe(self, index: int) -> str:
        """Return the file of a sample, and its key."""
        return f"{self._path}, key {self._key(self._inputs, index).decode()!r}"

    def _input(self, index: int) -> Array:
        content = self._value(self._key(self._inputs, index))
        if self.encoded:
            return np.frombuffer(content, np.uint8)
        array = array_of(content, self.describe(index))
        return array[..., None] if is_plain_image(array.shape, array.dtype) else array

    def _target(self, index: int) -> Any:
        if self._kept is not None:
            return self._kept[index]
        key = self._key(self._targets, index)
        return array_of(self._value(key), f"{self._path}, key {key.decode()!r}")

    def _key(self, pattern: str, index: int) -> bytes:
        return pattern.replace("{}", self._numbers[index].decode()).encode()

    def _value(self, key: bytes) -> bytes:
        with _transaction(self._path) as transaction:
            found = transaction.get(key)
        if found is None:
            raise SourceError(self._path, f"has no key {key.decode()!r}", "write it anew, or say how keys are called")
        return bytes(found)

    def _found_numbers(self) -> Array:
        """The digits of all keys of inputs, in the order of the numbers, bytes (n,)."""
        before, _, after = self._inputs.partition("{}")
        wanted = re.compile(re.escape(before.encode()) + rb"(\d+)" + re.escape(after.encode()))
        with _transaction(self._path) as transaction:
            found = [
                match[1] for key in transaction.cursor().iternext(values=False) if (match := wanted.fullmatch(key))
            ]
        if not found:
            mend = "write keys as numbers, or say how they are called, such as inputs: image-{}"
            raise SourceError(self._path, f"has no key like {self._inputs!r}, {{}} being digits", mend)
        return np.array(sorted(found, key=lambda digits: (len(digits.lstrip(b"0")), digits.lstrip(b"0"))))

    def _kept_targets(self, classes: Sequence[str] | None) -> Array | None:
        """The targets, if they are kept in memory; None if each is an array that is read with its sample."""
        if self._from_file:
            kept = self._targets_of_file()
            if len(kept) != len(self):
                rule = f"has {len(kept)} targets, and {self._path} has {len(self)} samples"
                raise SourceError(self._targets, rule, "give the file that belongs to it, a row for each key in order")
        elif self._value(self._key(self._targets, 0)).startswith(_NPY):
            kept = None
        else:
            kept = target_array([*self._texts()], self._path)
        if kept is None or kept.dtype.kind != "U":
            if classes is not None:
                raise SourceError(list(classes), f"{self._path} numbers its classes", "leave out classes")
            return kept
        names = [str(name) for name in kept]
        self.classes = tuple(map(str, classes)) if classes is not None else tuple(sorted(set(names)))
        return np.array(label_numbers(names, self.classes, self._path), np.int64)

    def _targets_of_file(self) -> Array:
        found = open_array(self._targets)
        if not isinstance(found, np.ndarray):
            raise SourceError(self._targets, "is an archive, and targets are a single array", "give an .npy file")
        return np.asarray(found)

    def _texts(self) -> Iterator[Any]:
        with _transaction(self._path) as transaction:
            for index in range(len(self)):
                key = self._key(self._targets, index)
                content = transaction.get(key)
                if content is None:
                    raise SourceError(self._path, f"has no key {key.decode()!r}", "write a target for each sample")
                yield value_of(bytes(content), "txt", "", f"{self._path}, key {key.decode()!r}")


def open_lmdb(
    path: str, inputs: str = "{}", targets: str = "{}-label", channels: int = 3, classes: Sequence[str] | None = None
) -> LmdbSource:
    """Open an LMDB file.

    Args:
        path: the folder with data.mdb, or the file.
        inputs: how the keys of inputs are called, {} being a sample's number in digits. Their values are image files,
            or arrays as .npy files.
        targets: the same of targets: numbers or names of classes as text, or arrays as .npy files; or the path of an
            .npy file with a row for each sample.
        channels: 3 or 1, of decoded images.
        classes: names of the classes in the order of their numbers, for targets that are names; if not given, all that
            occur, sorted.

    Raises:
        SourceError: lmdb is not installed, there is no such file, it is damaged, or the arguments do not fit it.
    """
    needed("lmdb", "lmdb", "lmdb", "LMDB files")
    if not os.path.exists(path):
        raise SourceError(
            str(path), "there is no such file or folder", f"paths are relative to {Path.cwd()}; mend the path"
        )
    given: Mapping[str, Any] = {"inputs": inputs, "targets": targets, "channels": channels, "classes": classes}
    try_in_time("LMDB", try_lmdb, str(path), **given)
    return LmdbSource(str(path), **given)


def try_lmdb(told: str) -> None:
    """Open a file with `open_lmdb`'s arguments, as JSON, in a process of its own, and read a little of it."""
    bounded(LmdbSource, told)


@contextmanager
def _transaction(path: str) -> Iterator[Any]:
    import lmdb

    with damage_named(path, "it", (lmdb.Error,), _MEND):
        inside = os.path.isdir(path)
        existing(os.path.join(path, "data.mdb") if inside else path)
        # A file that nobody writes needs no lock, and some parallel file systems have none.
        environment = lmdb.open(path, subdir=inside, readonly=True, create=False, lock=False, readahead=False)
        try:
            with environment.begin() as transaction:
                yield transaction
        finally:
            environment.close()


def _pattern(given: Any, what: str) -> str:
    if not isinstance(given, str) or given.count("{}") != 1:
        rule = f"{what} says how keys are called, with {{}} once for a sample's number"
        raise SourceError(given, rule, f"write {what}: image-{{}}")
    return given
