"""Tar shards in the manner of WebDataset: KEY.jpg beside KEY.cls or KEY.json."""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from preprocess.samples.errors import SourceError
from preprocess.samples.layout import Array, SampleLayout
from preprocess.sources.encoded_images import check_channels, decoded_layout, label_numbers
from preprocess.sources.named_files import named_files
from preprocess.sources.tar_index import ShardIndex, shard_index

_EXAMPLES = "a shard, a pattern such as train-*.tar, or a folder of shards"

#: Shards that are held open at once; a process may have about 1000 files open.
_OPEN_SHARDS = 128


class TarSource:
    """Encoded images in the order of the shards, and within a shard in its own.

    Attributes:
        classes: names of the classes by their numbers, if the shards name them; None if they have numbers.
        channels: channels of the decoded images.
    """

    encoded = True

    def __init__(self, shards: Sequence[ShardIndex], labels: Array, classes: Sequence[str] | None, channels: int):
        self._paths = [shard.path for shard in shards]
        self._shards = np.repeat(np.arange(len(shards)), [len(shard.offsets) for shard in shards])
        self._offsets = np.concatenate([shard.offsets for shard in shards])
        self._sizes = np.concatenate([shard.sizes for shard in shards])
        self._labels, self.channels = labels, channels
        self.classes = None if classes is None else tuple(classes)
        self._files: OrderedDict[int, _OpenFile] = OrderedDict()

    @cached_property
    def layout(self) -> SampleLayout:
        """The decoded images'; looking for it reads images until two differ in height and width."""
        contents = (lambda index=index: self._content(index) for index in range(len(self)))  # type: ignore[misc]
        return decoded_layout(contents, self.channels, self._paths[0])

    def __len__(self) -> int:
        return len(self._offsets)

    def read(self, index: int) -> tuple[Array, Any]:
        return np.frombuffer(self._content(index), np.uint8), self._labels[index]

    def describe(self, index: int) -> str:
        """Return the shard of a sample, and where in it its image begins."""
        return f"{self._paths[self._shards[index]]}, the image at byte {self._offsets[index]}"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_files": OrderedDict()}  # another process opens its own

    def _content(self, index: int) -> bytes:
        size = self._sizes.item(index)
        content = os.pread(self._descriptor(self._shards.item(index)), size, self._offsets.item(index))
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
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self.descriptor)


def open_tar(
    path: str | Sequence[str], channels: int = 3, label: str = "label", classes: Sequence[str] | None = None
) -> TarSource:
    """Open tar shards whose samples are KEY.jpg (or another image) beside KEY.cls or KEY.json.

    The places of the samples are found once for each shard and kept in SHARD.tar.index beside it, where that can be
    written.

    Args:
        path: a shard, a pattern such as train-*.tar, a folder of shards, or a list of these.
        channels: 3 or 1, of the decoded images.
        label: the key of the class in KEY.json; KEY.cls goes first.
        classes: names of the classes in the order of their numbers, for shards that name them; if not given, all
            names that occur, sorted.

    Raises:
        SourceError: no such shards, no tar files, compressed ones, or samples without image or class.
    """
    channels = check_channels(channels)
    shards = [shard_index(shard, label) for shard in named_files(path, ".tar", _EXAMPLES)]
    if not any(len(shard.offsets) for shard in shards):
        raise SourceError(path, "holds no images", "name them KEY.jpg, with KEY.cls or KEY.json beside")
    shards = [shard for shard in shards if len(shard.offsets)]
    kinds = {shard.labels.dtype.kind for shard in shards}
    if kinds == {"i"}:
        if classes is not None:
            raise SourceError(list(classes), "the shards number their classes", "leave out classes")
        return TarSource(shards, np.concatenate([shard.labels for shard in shards]), None, channels)
    names = [str(name) for shard in shards for name in shard.labels]
    known = list(classes) if classes is not None else sorted(set(names))
    return TarSource(shards, np.array(label_numbers(names, known, str(path)), np.int64), known, channels)
