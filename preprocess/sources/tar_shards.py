"""Tar shards in the manner of WebDataset: KEY.jpg beside KEY.cls or KEY.json, or other members that are named."""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from preprocess.files.memory import SMALL_BYTES, check_claim
from preprocess.files.reading import open_descriptor
from preprocess.samples.block_order import Indices
from preprocess.samples.errors import SourceError
from preprocess.samples.layout import Array, SampleLayout
from preprocess.sources.arrays import is_plain_image
from preprocess.sources.encoded_images import check_channels, decoded_layout, label_numbers
from preprocess.sources.file_paths import file_paths
from preprocess.sources.tar_fields import TarFields, array_of, checked_fields, unpacked
from preprocess.sources.tar_index import ShardIndex, shard_index

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
    fields = checked_fields(inputs, targets, label)
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
