"""The members of a sample in a tar shard: which are its input and its target, and what their bytes say."""

from __future__ import annotations

import io
import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from preprocess.files.memory import EXPANSION, SMALL_BYTES
from preprocess.samples.errors import SourceError
from preprocess.samples.layout import Array
from preprocess.sources.arrays import npy_header
from preprocess.sources.encoded_images import IMAGE_EXTENSIONS

#: Bytes that a packed member may unpack to; a few kB can hold any number of zeros.
MOST_BYTES = 2**30
MOST_NAME = 1024
"""Characters of a class's name: as an array, all names take what the longest does."""
MEND = "write the shard anew"


@dataclass(frozen=True)
class TarFields:
    """Which members of a sample are read, by the endings of their names behind the key, without the first dot.

    Attributes:
        inputs: the member's ending, such as jpg or x.npy; None: the sample's image.
        targets: the target's ending, such as cls, json, txt or y.npy; None: cls, or else json.
        label: the key of the target in a JSON file.
    """

    inputs: str | None = None
    targets: str | None = None
    label: str = "label"

    @property
    def input_is_array(self) -> bool:
        """Whether inputs are NumPy files; they are images otherwise."""
        return self.inputs is not None and plain_ending(self.inputs) == "npy"

    @property
    def target_is_array(self) -> bool:
        """Whether targets are NumPy files, which are read with each sample; others are kept in the index."""
        return self.targets is not None and plain_ending(self.targets) == "npy"


def checked_fields(inputs: Any, targets: Any, label: Any) -> TarFields:
    """Return the fields that arguments name.

    Raises:
        SourceError: one cannot be read as an input, or as a target.
    """
    fields = TarFields(_ending(inputs, "inputs"), _ending(targets, "targets"), str(label))
    if fields.inputs is not None and plain_ending(fields.inputs) not in (*IMAGE_EXTENSIONS, "npy"):
        rule = f"an input is an image ({', '.join(IMAGE_EXTENSIONS)}) or an array (npy), gzipped (.gz) or not"
        raise SourceError(inputs, rule, "name such a member's ending: inputs: jpg")
    if fields.targets is not None and plain_ending(fields.targets) not in ("cls", "txt", "json", "npy"):
        raise SourceError(targets, "a target is a cls, txt, json or npy file, gzipped or not", "write targets: cls")
    return fields


def plain_ending(ending: str) -> str:
    """Return the last part of an ending, that of packing left out: npy of x.npy.gz."""
    return ending.removesuffix(".gz").rpartition(".")[2]


def unpacked(content: bytes, ending: str, what: str) -> bytes:
    """Return what a member holds, unpacked if its ending says that it is gzipped.

    Raises:
        SourceError: it does not unpack, or to more than MOST_BYTES.
    """
    if not ending.endswith(".gz"):
        return content
    unpacker = zlib.decompressobj(wbits=31)
    try:
        most = min(MOST_BYTES, max(SMALL_BYTES, EXPANSION * len(content)))
        found = unpacker.decompress(content, most)
    except zlib.error as cause:
        raise SourceError(what, f"is a gzip file that does not unpack ({cause})", MEND) from cause
    if not unpacker.eof:
        rule = f"unpacks to more than {most} bytes" if unpacker.unconsumed_tail else "is a gzip file that is cut off"
        raise SourceError(what, rule, MEND)
    return found


def array_of(content: bytes, what: str) -> Array:
    """Return the array of an .npy file.

    Raises:
        SourceError: it is none, or not of numbers.
    """
    try:
        stream = io.BytesIO(content)
        shape, _, dtype = npy_header(stream)
        if math.prod(shape) * dtype.itemsize > len(content) - stream.tell():
            raise ValueError(f"it claims the shape {shape} in {len(content)} bytes")
        array = np.load(io.BytesIO(content), allow_pickle=False)
    except Exception as cause:  # NumPy raises nearly anything on what is damaged
        text = " ".join(str(cause).split())[:200]
        raise SourceError(what, f"is no .npy file of numbers ({text})", "write it with numpy.save") from cause
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iufb":
        raise SourceError(what, "is no .npy file of numbers", "write it with numpy.save")
    return array


def value_of(content: bytes, ending: str, label: str, what: str) -> int | float | str | list[float]:
    """Return the target that a cls, txt or json file holds: a number, a name, or in JSON a list of numbers.

    Raises:
        SourceError: it holds none.
    """
    kind = plain_ending(ending)
    if kind == "json":
        return _json_value(content, label, what)
    text = content.decode("utf-8", "replace").strip()
    if not text:
        raise SourceError(what, "is empty", "write the class's number or name, or a number, into it")
    if text.lstrip("-").isdecimal():
        try:
            return int(text)
        except ValueError as cause:  # of thousands of digits
            raise SourceError(what, "has a number that is too long", MEND) from cause
    if len(text) > MOST_NAME:
        raise SourceError(what, f"has a name of {len(text)} characters", f"name classes in {MOST_NAME} at most")
    return _fraction(text) if kind == "txt" else text


def target_array(targets: Sequence[Any], path: str) -> Array:
    """Return targets as one array: numbers, int64 or float64 (n,) or (n, k), or names, (n,).

    Raises:
        SourceError: they are not alike.
    """
    kinds = {type(target) for target in targets}
    if str in kinds and len(kinds) > 1:
        raise SourceError(path, "some of its classes are numbers and some are names", "use one of them throughout")
    if kinds <= {int}:
        try:
            return np.array(targets, np.int64)
        except OverflowError as cause:
            rule = "a class has a number of more than 64 bits"
            raise SourceError(path, rule, "number the classes from 0 on") from cause
    if kinds == {str}:
        return np.array(targets, np.str_)
    whole = kinds <= {tuple, list} and all(type(number) is int for target in targets for number in target)
    try:
        return np.array(targets, np.int64 if whole else np.float64)
    except (ValueError, TypeError, OverflowError) as cause:
        raise SourceError(path, "its targets have different shapes", "give all lists one length") from cause


def _fraction(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _json_value(content: bytes, label: str, what: str) -> Any:
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as cause:
        raise SourceError(what, f"is not JSON ({cause})", "write it anew") from cause
    found = values.get(label) if isinstance(values, dict) else None
    numbers = isinstance(found, list) and found and all(type(number) in (int, float) for number in found)
    if not numbers and (isinstance(found, bool) or not isinstance(found, (int, float, str))):
        raise SourceError(what, f"has no number, name or list of numbers under {label!r}", "name the key by label: KEY")
    if isinstance(found, str) and len(found) > MOST_NAME:
        raise SourceError(what, f"has a name of {len(found)} characters", f"name classes in {MOST_NAME} at most")
    return found


def _ending(given: Any, what: str) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str) or not given.strip("."):
        raise SourceError(given, f"{what} is the ending of a member's name behind its key", f"write {what}: npy")
    return given.lower().lstrip(".")
