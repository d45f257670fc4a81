"""Where the samples of a tar shard lie: found by reading its headers once, then kept beside it."""

from __future__ import annotations

import json
import os
import tarfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from preprocess.files.reading import open_file
from preprocess.files.writing import whole_file
from preprocess.samples.errors import SourceError
from preprocess.samples.layout import Array
from preprocess.sources.arrays import Archive
from preprocess.sources.encoded_images import IMAGE_EXTENSIONS
from preprocess.sources.tar_fields import TarFields, target_array, unpacked, value_of

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
