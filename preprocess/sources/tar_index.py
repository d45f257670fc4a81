"""Where the samples of a tar shard lie: found by reading its headers once, then kept beside it."""

from __future__ import annotations

import json
import os
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from preprocess.samples.errors import SourceError
from preprocess.samples.layout import Array
from preprocess.sources.encoded_images import IMAGE_EXTENSIONS

_VERSION = 1


@dataclass(frozen=True)
class ShardIndex:
    """The samples of one shard, in its order.

    Attributes:
        path: the shard.
        offsets: where each image begins, bytes from the shard's start, int64 (n,).
        sizes: bytes of each image, int64 (n,).
        labels: the classes: numbers, int64 (n,), or names, (n,).
    """

    path: str
    offsets: Array
    sizes: Array
    labels: Array


def shard_index(path: str, label: str) -> ShardIndex:
    """Return the index of a shard: the kept one if it belongs to this very file, else a new one, which is kept.

    Raises:
        SourceError: not a tar file, or samples without image or class.
    """
    status = os.stat(path)
    stamp = [_VERSION, status.st_size, status.st_mtime_ns, label]
    kept = Path(f"{path}.index")
    index = _load(path, kept, stamp)
    if index is None:
        index = _scan(path, label)
        _keep(index, kept, stamp)
    return index


def _load(path: str, kept: Path, stamp: list[Any]) -> ShardIndex | None:
    try:
        with np.load(kept, allow_pickle=False) as arrays:
            if json.loads(str(arrays["stamp"])) == stamp:
                index = ShardIndex(path, arrays["offsets"], arrays["sizes"], arrays["labels"])
                return index if _lies_inside(index, stamp[1]) else None
    except Exception:  # NumPy and zip raise nearly anything on what is damaged
        pass  # none yet, or no longer good: it is made anew
    return None


def _lies_inside(index: ShardIndex, size: int) -> bool:
    """Whether an index can be that of a shard of so many bytes."""
    offsets, sizes, labels = index.offsets, index.sizes, index.labels
    if not offsets.dtype == sizes.dtype == np.dtype(np.int64) or labels.dtype.kind not in "iU":
        return False
    alike = offsets.shape == sizes.shape == labels.shape == (len(offsets),)
    return alike and bool(np.all((offsets >= 0) & (sizes >= 0) & (sizes <= size) & (offsets <= size - sizes)))


def _keep(index: ShardIndex, kept: Path, stamp: list[Any]) -> None:
    temporary = kept.with_name(f".{kept.name}.{os.getpid()}")
    try:
        try:
            with open(temporary, "wb") as file:
                text = np.array(json.dumps(stamp))
                np.savez(file, stamp=text, offsets=index.offsets, sizes=index.sizes, labels=index.labels)
            os.replace(temporary, kept)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError:
        pass  # a folder that cannot be written: the next one to come reads the headers again


def _scan(path: str, label: str) -> ShardIndex:
    try:
        with tarfile.open(path, "r:") as shard:
            samples = _samples(shard, path)
            labels = [_label(shard, path, key, parts, label) for key, parts in samples.items()]
    except (tarfile.TarError, EOFError, ValueError) as cause:
        if isinstance(cause, SourceError):
            raise
        rule = f"is not a whole, uncompressed tar file ({cause})"
        raise SourceError(path, rule, "copy it anew; unpack it with gunzip if it is compressed") from cause
    images = [_image(path, key, parts) for key, parts in samples.items()]
    offsets = np.array([image.offset_data for image in images], np.int64)
    sizes = np.array([image.size for image in images], np.int64)
    return ShardIndex(path, offsets, sizes, _label_array(labels, path))


def _samples(shard: tarfile.TarFile, path: str) -> dict[str, dict[str, tarfile.TarInfo]]:
    """Key -> ending -> member; members that belong to no image are left out."""
    samples: dict[str, dict[str, tarfile.TarInfo]] = {}
    for member in shard:
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
    return {key: parts for key, parts in samples.items() if any(ending in IMAGE_EXTENSIONS for ending in parts)}


def _check_end(shard: tarfile.TarFile, path: str) -> None:
    """Python ends without a word at a header that is broken, or cut off."""
    with open(path, "rb") as file:
        file.seek(shard.offset)
        if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError(f"at byte {shard.offset} is neither a member nor the end")


def _image(path: str, key: str, parts: dict[str, tarfile.TarInfo]) -> tarfile.TarInfo:
    found = [member for ending, member in parts.items() if ending in IMAGE_EXTENSIONS]
    if len(found) > 1:
        names = " and ".join(member.name for member in found)
        raise SourceError(path, f"the sample {key!r} has two images, {names}", "leave one image for each key")
    return found[0]


def _label(shard: tarfile.TarFile, path: str, key: str, parts: dict[str, tarfile.TarInfo], label: str) -> Any:
    mend = f"add {key}.cls with the class's number or name, or {key}.json with the key {label!r}"
    if "cls" in parts:
        text = _content(shard, parts["cls"]).decode("utf-8", "replace").strip()
        if not text:
            raise SourceError(path, f"{key}.cls is empty", mend)
        return int(text) if text.lstrip("-").isdecimal() else text
    if "json" not in parts:
        raise SourceError(path, f"the sample {key!r} has no class", mend)
    try:
        values = json.loads(_content(shard, parts["json"]))
    except ValueError as cause:
        raise SourceError(path, f"{key}.json is not JSON ({cause})", "write it anew") from cause
    found = values.get(label) if isinstance(values, dict) else None
    if isinstance(found, bool) or not isinstance(found, (int, str)):
        raise SourceError(path, f"{key}.json has no number or name under {label!r}", "name the key by label: KEY")
    return found


def _content(shard: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = shard.extractfile(member)
    assert file is not None  # it is a regular member
    return file.read()


def _label_array(labels: list[Any], path: str) -> Array:
    kinds = {type(label) for label in labels}
    if len(kinds) > 1:
        raise SourceError(path, "some of its classes are numbers and some are names", "use one of them throughout")
    try:
        return np.array(labels, np.int64 if kinds <= {int} else np.str_)
    except OverflowError as cause:
        raise SourceError(path, "a class has a number of more than 64 bits", "number the classes from 0 on") from cause
