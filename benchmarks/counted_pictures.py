"""Pictures that note each time one of them is read and decoded, whichever process does it."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg

from benchmarks.pictures import SIDE
from preprocess import DatasetSpec, SourceSpec, open_source

__all__ = ["NotedPictures", "counted", "times_read"]


class NotedPictures:
    """The pictures of a file as a map-style data set, decoded here.

    Args:
        path: the file of encoded pictures.
        note: where the number of each picture that is read is appended, 4 bytes.
    """

    def __init__(self, path: str, note: str) -> None:
        self._source = open_source("hdf5", {"path": path})
        self._note = os.open(note, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        os.write(self._note, np.int32(index).tobytes())
        content, target = self._source.read(index)
        return simplejpeg.decode_jpeg(content), int(target)


def counted(path: Path, note: str) -> DatasetSpec:
    """The data set; its user says that reading draws nothing."""
    source = SourceSpec("benchmarks.counted_pictures:NotedPictures", {"path": str(path), "note": note})
    transforms: tuple[Any, ...] = ({"random_resized_crop": {"size": SIDE}}, {"flip": {}})
    return DatasetSpec("noted", source, transforms=transforms, store=True)


def times_read(note: str, pictures: int) -> Counter[int]:
    """How often each picture was read since the first look at a few, which shows what reading costs.

    Args:
        note: the file.
        pictures: there are so many; looks come before the first of them is read for a network.
    """
    numbers = np.fromfile(note, np.int32)
    return Counter(numbers[-pictures:].tolist())
