"""Tar shards in the manner of WebDataset: KEY.jpg beside KEY.cls or KEY.json, or other members that are named.

Where the samples lie is found by reading a shard's headers once, then kept beside it.
"""

from __future__ import annotations

import io
import json
import math
import os
import tarfile
import weakref
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from preprocess.files.memory import EXPANSION, SMALL_BYTES, check_claim
from preprocess.files.reading import open_descriptor, open_file
from preprocess.files.writing import whole_file
from preprocess.samples.errors import SourceError
from preprocess.samples.layout import Array, Indices, SampleLayout
from preprocess.sources.arrays import Archive, is_plain_image, npy_header
from preprocess.sources.checked_files import file_paths
from preprocess.sources.encoded_images import IMAGE_EXTENSIONS, check_channels, decoded_layout, label_numbers

#: Bytes that a packed member may unpack to; a few kB can hold any number of zeros.
MOST_BYTES = 2**30
MOST_NAME = 1024
"""Characters of a class's name: as an array, all names take what the longest does."""
MEND = "write the shard anew"


@dataclass(frozen=True)
class TarFields:
    """Members of a sample that are read, by the endings of their names behind the key, without the first dot.

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
        return self.inputs is not None and _plain_ending(self.inputs) == "npy"

    @property
    def target_is_array(self) -> bool:
        """Whether targets are NumPy files, which are read with each sample; others are kept in the index."""
        return self.targets is not None and _plain_ending(self.targets) == "npy"


def _checked_fields(inputs: Any, targets: Any, label: Any) -> TarFields:
    """Return the fields that arguments name.

    Raises:
        SourceError: one cannot be read as an input, or as a target.
    """
    fields = TarFields(_ending(inputs, "inputs"), _ending(targets, "targets"), str(label))
    if fields.inputs is not None and _plain_ending(fields.inputs) not in (*IMAGE_EXTENSIONS, "npy"):
        rule = f"an input is an image ({', '.join(IMAGE_EXTENSIONS)}) or an array (npy), gzipped (.gz) or not"
        raise SourceError(inputs, rule, "name such a member's ending: inputs: jpg")
    if fields.targets is not None and _plain_ending(fields.targets) not in ("cls", "txt", "json", "npy"):
        raise SourceError(targets, "a target is a cls, txt, json or npy file, gzipped or not", "write targets: cls")
    return fields


def _plain_ending(ending: str) -> str:
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
    kind = _plain_ending(ending)
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


_VERSION = 2
_MOST_READ = 16 << 20  # bytes
_PACKED = {b"\x1f\x8b": "gunzip", b"\xfd7zXZ": "unxz", b"BZh": "bunzip2", b"\x28\xb5\x2f\xfd": "unzstd"}


@dataclass(frozen=True)
class ShardIndex:
    """The samples of one shard, in its order.

    Attributes:
        path: the shard.
        offsets: where each input begins, bytes from the shard's start, int64 (n,).
        sizes: bytes of each input, int64 (n,).
        labels: the targets: numbers, int64 or float64 (n,) or (n, k), or names of classes, (n,); of targets that lie in
            files of their own their places, int64 (n, 2): offset and size.
    """

    path: str
    offsets: Array
    sizes: Array
    labels: Array


def shard_index(path: str, fields: TarFields) -> ShardIndex:
    """Return the index of a shard: the kept one if it belongs to this very file, else a new one, which is kept.

    Raises:
        SourceError: not a tar file, or samples without input or target.
    """
    status = os.stat(path)
    stamp = [_VERSION, status.st_size, status.st_mtime_ns, fields.label, fields.inputs, fields.targets]
    kept = Path(f"{path}.index")
    index = _load(path, kept, stamp, fields)
    if index is None:
        index = _scan(path, fields)
        _keep(index, kept, stamp)
    return index


def _load(path: str, kept: Path, stamp: list[Any], fields: TarFields) -> ShardIndex | None:
    try:
        archive = Archive(str(kept))
        if json.loads(str(archive.array("stamp").whole())) == stamp:
            arrays = [archive.array(name) for name in ("offsets", "sizes", "labels")]
            if any(len(array) > stamp[1] // tarfile.BLOCKSIZE for array in arrays):
                return None
            index = ShardIndex(path, *(array.whole() for array in arrays))
            return index if _lies_inside(index, stamp[1], fields) else None
    except Exception:  # NumPy and zip raise nearly anything on what is damaged
        pass  # none yet, or no longer good: it is made anew
    return None


def _lies_inside(index: ShardIndex, size: int, fields: TarFields) -> bool:
    """Whether an index can be that of a shard of so many bytes."""
    labels = index.labels
    if labels.dtype.kind not in "iUf" or labels.ndim not in (1, 2) or len(labels) != len(index.offsets):
        return False
    if not _places_inside(index.offsets, index.sizes, size):
        return False
    return not fields.target_is_array or (labels.shape[1:] == (2,) and _places_inside(labels[:, 0], labels[:, 1], size))


def _places_inside(offsets: Array, sizes: Array, size: int) -> bool:
    if not offsets.dtype == sizes.dtype == np.dtype(np.int64) or not offsets.shape == sizes.shape == (len(offsets),):
        return False
    return bool(np.all((offsets >= 0) & (sizes >= 0) & (sizes <= size) & (offsets <= size - sizes)))


def _keep(index: ShardIndex, kept: Path, stamp: list[Any]) -> None:
    text = np.array(json.dumps(stamp))
    with suppress(OSError), whole_file(kept) as file:  # where that fails the next one to come reads the headers again
        np.savez(file, stamp=text, offsets=index.offsets, sizes=index.sizes, labels=index.labels)


def _scan(path: str, fields: TarFields) -> ShardIndex:
    _refuse_packed(path)
    try:
        with open_file(path) as file, tarfile.open(fileobj=cast(Any, _Pieces(file)), mode="r:") as shard:
            samples = _samples(shard, path, fields)
            inputs = [_input(path, key, parts, fields) for key, parts in samples.items()]
            targets = [_target(shard, path, key, parts, fields) for key, parts in samples.items()]
    except (tarfile.TarError, EOFError, ValueError, ArithmeticError, LookupError, RecursionError, MemoryError) as cause:
        if isinstance(cause, SourceError):
            raise
        rule = f"is not a whole, uncompressed tar file ({cause})"
        raise SourceError(path, rule, "copy it anew from where it came") from cause
    places = np.array([_place(member) for member in inputs], np.int64).reshape(-1, 2)
    return ShardIndex(path, places[:, 0], places[:, 1], target_array(targets, path))


class _Pieces:
    """A shard whose headers and targets are read: none is as large as a header can claim to be."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        if size > _MOST_READ:
            raise tarfile.ReadError(f"a header claims {size} bytes, and a name or a target has {_MOST_READ} at most")
        return self._file.read(size)


def _refuse_packed(path: str) -> None:
    with open_file(path) as file:
        begins = file.read(8)
    for head, program in _PACKED.items():
        if begins.startswith(head):
            rule = "is a compressed tar file, in which no sample can be found without reading all before it"
            raise SourceError(path, rule, f"unpack it with {program} and give the .tar; or convert that: fleet convert")


def _samples(shard: tarfile.TarFile, path: str, fields: TarFields) -> dict[str, dict[str, tarfile.TarInfo]]:
    """Key -> ending -> member; members that belong to no input are left out."""
    samples: dict[str, dict[str, tarfile.TarInfo]] = {}
    size = os.stat(path).st_size
    for member in shard:
        if member.issparse():
            rule = f"its member {member.name!r} is sparse: it lies in pieces, and claims {member.size} bytes"
            raise SourceError(path, rule, "write the shard anew, with tar without --sparse")
        if member.isreg() and member.offset_data + member.size > size:
            raise tarfile.ReadError(f"its member {member.name!r} reaches beyond its end")
        folder, name = os.path.split(member.name)
        stem, dot, ending = name.partition(".")
        if not member.isreg() or not stem or not dot:
            continue
        parts = samples.setdefault(os.path.join(folder, stem), {})
        if ending.lower() in parts:
            rule = f"has {member.name!r} twice"
            raise SourceError(path, rule, "give each sample a name of its own")
        parts[ending.lower()] = member
    _check_end(shard, path)
    wanted = IMAGE_EXTENSIONS if fields.inputs is None else (fields.inputs,)
    return {key: parts for key, parts in samples.items() if any(ending in wanted for ending in parts)}


def _check_end(shard: tarfile.TarFile, path: str) -> None:
    """Python ends without a word at a header that is broken, or cut off."""
    with open_file(path) as file:
        file.seek(shard.offset)
        if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError(f"at byte {shard.offset} is neither a member nor the end")


def _place(member: tarfile.TarInfo) -> tuple[int, int]:
    return member.offset_data, member.size


def _input(path: str, key: str, parts: dict[str, tarfile.TarInfo], fields: TarFields) -> tarfile.TarInfo:
    if fields.inputs is not None:
        return parts[fields.inputs]
    found = [member for ending, member in parts.items() if ending in IMAGE_EXTENSIONS]
    if len(found) > 1:
        names = " and ".join(member.name for member in found)
        mend = "leave one image for each key, or say which: inputs: ENDING"
        raise SourceError(path, f"the sample {key!r} has two images, {names}", mend)
    return found[0]


def _target(shard: tarfile.TarFile, path: str, key: str, parts: dict[str, tarfile.TarInfo], fields: TarFields) -> Any:
    """The target of a sample; of one that is an array, its place."""
    ending = fields.targets or ("cls" if "cls" in parts else "json")
    if ending not in parts:
        mend = f"add {key}.cls with the class's number or name, or {key}.json with the key {fields.label!r}"
        if fields.targets is not None:
            rule, mend = (
                f"the sample {key!r} has no {ending}",
                f"it has {', '.join(sorted(parts))}: name one by targets",
            )
            raise SourceError(path, rule, mend)
        raise SourceError(path, f"the sample {key!r} has no class", mend)
    if fields.target_is_array:
        return _place(parts[ending])
    what = f"{path}, {key}.{ending}"
    return value_of(unpacked(_content(shard, parts[ending]), ending, what), ending, fields.label, what)


def _content(shard: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = shard.extractfile(member)
    assert file is not None  # it is a regular member
    return file.read()


#: Shards that are held open at once; a process may have about 1000 files open.
_OPEN_SHARDS = 128

#: Compressed ones are refused, rather than not seen.
_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar.zst")
SHARDS = "a shard, a pattern such as train-*.tar, or a folder of shards"


class TarSource:
    """Encoded images or arrays in the order of the shards, and within a shard in its own.

    Attributes:
        encoded: whether inputs are encoded images.
        classes: names of the classes by their numbers, if the shards name them; None if they have numbers.
        channels: channels of the decoded images.
        target_layout: shape and dtype of every target.
    """

    def __init__(
        self,
        shards: Sequence[ShardIndex],
        labels: Array,
        classes: Sequence[str] | None,
        channels: int,
        fields: TarFields,
    ) -> None:
        self._fields, self.encoded = fields, not fields.input_is_array
        self._paths = [shard.path for shard in shards]
        self._shards = np.repeat(np.arange(len(shards)), [len(shard.offsets) for shard in shards])
        self._offsets = np.concatenate([shard.offsets for shard in shards])
        self._sizes = np.concatenate([shard.sizes for shard in shards])
        self._labels, self.channels = labels, channels
        self.classes = None if classes is None else tuple(classes)
        self._files: OrderedDict[int, _OpenFile] = OrderedDict()
        target = np.asarray(self._target(0))
        self.target_layout = target.shape, "int64" if target.dtype.kind in "iub" else str(target.dtype)

    @cached_property
    def layout(self) -> SampleLayout:
        """The samples'; looking for that of images reads them until two differ in height and width."""
        shape, dtype = self.target_layout
        if not self.encoded:
            first = self._input(0)
            return SampleLayout(first.shape, str(first.dtype), shape, dtype)
        contents = (lambda index=index: self._content(index) for index in range(len(self)))  # type: ignore[misc]
        found = decoded_layout(contents, self.channels, self._paths[0])
        return replace(found, target_shape=shape, target_dtype=dtype)

    def __len__(self) -> int:
        return len(self._offsets)

    def read(self, index: int) -> tuple[Array, Any]:
        return self._input(index), self._target(index)

    def block_starts(self) -> Indices:
        """Return the first sample of each shard."""
        return np.flatnonzero(np.diff(self._shards, prepend=-1))

    def describe(self, index: int) -> str:
        """Return the shard of a sample, and where in it its input begins."""
        what = "image" if self.encoded else "array"
        return f"{self._paths[self._shards[index]]}, the {what} at byte {self._offsets[index]}"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_files": OrderedDict()}  # another process opens its own

    def _input(self, index: int) -> Array:
        content = self._content(index)
        if self.encoded:
            return np.frombuffer(content, np.uint8)
        array = array_of(content, self.describe(index))
        return array[..., None] if is_plain_image(array.shape, array.dtype) else array

    def _target(self, index: int) -> Any:
        if not self._fields.target_is_array:
            return self._labels[index]
        ending, what = str(self._fields.targets), f"the target of {self.describe(index)}"
        return array_of(unpacked(self._bytes(index, *self._labels[index].tolist()), ending, what), what)

    def _content(self, index: int) -> bytes:
        content = self._bytes(index, self._offsets.item(index), self._sizes.item(index))
        return unpacked(content, self._fields.inputs or "", self.describe(index))

    def _bytes(self, index: int, offset: int, size: int) -> bytes:
        if size > SMALL_BYTES:
            check_claim(self.describe(index), size)
        content = os.pread(self._descriptor(self._shards.item(index)), size, offset)
        if len(content) != size:
            rule = f"has {len(content)} of its {size} bytes: the shard is cut short"
            raise SourceError(self.describe(index), rule, "copy the shard anew")
        return content

    def _descriptor(self, shard: int) -> int:
        file = self._files.get(shard)
        if file is None:
            file = self._files[shard] = _OpenFile(self._paths[shard])
            if len(self._files) > _OPEN_SHARDS:
                self._files.popitem(last=False)
        self._files.move_to_end(shard)
        return file.descriptor


class _OpenFile:
    """A file descriptor that is closed when nobody holds it any more."""

    def __init__(self, path: str) -> None:
        self.descriptor = open_descriptor(path)
        weakref.finalize(self, os.close, self.descriptor)


def open_tar(
    path: str | Sequence[str],
    channels: int = 3,
    label: str = "label",
    classes: Sequence[str] | None = None,
    inputs: str | None = None,
    targets: str | None = None,
) -> TarSource:
    """Open tar shards whose samples are KEY.jpg (or another image) beside KEY.cls or KEY.json, or other members.

    The places of the samples are found once for each shard and kept in SHARD.tar.index beside it, where that can be
    written.

    Args:
        path: a shard, a pattern such as train-*.tar, a folder of shards, or a list of these.
        channels: 3 or 1, of the decoded images.
        label: the key of the class, number or list of numbers in KEY.json; KEY.cls goes first.
        classes: names of the classes in the order of their numbers, for shards that name them; if not given, all
            names that occur, sorted.
        inputs, targets: endings of the members that are the input and the target, such as x.npy and y.npy; see
            `TarFields`.

    Raises:
        SourceError: no such shards, no tar files, compressed ones, or samples without input or target.
    """
    channels = check_channels(channels)
    fields = _checked_fields(inputs, targets, label)
    shards = [shard_index(shard, fields) for shard in file_paths(path, _ENDINGS, SHARDS)]
    if not any(len(shard.offsets) for shard in shards):
        if fields.inputs is not None:
            raise SourceError(path, f"holds no member KEY.{fields.inputs}", "name the inputs' ending: inputs: npy")
        raise SourceError(path, "holds no images", "name them KEY.jpg, with KEY.cls or KEY.json beside")
    shards = [shard for shard in shards if len(shard.offsets)]
    kinds = {shard.labels.dtype.kind for shard in shards}
    if "U" not in kinds:
        if classes is not None:
            raise SourceError(list(classes), "the shards number their classes", "leave out classes")
        return TarSource(shards, _joined(shards), None, channels, fields)
    names = [str(name) for shard in shards for name in shard.labels]
    known = list(classes) if classes is not None else sorted(set(names))
    return TarSource(shards, np.array(label_numbers(names, known, str(path)), np.int64), known, channels, fields)


def _joined(shards: Sequence[ShardIndex]) -> Array:
    for shard in shards:
        if shard.labels.shape[1:] != shards[0].labels.shape[1:]:
            rule = f"its targets have the shape {shard.labels.shape[1:]}, those of {shards[0].path} another"
            raise SourceError(shard.path, rule, "give shards that are alike")
    return np.concatenate([shard.labels for shard in shards])
