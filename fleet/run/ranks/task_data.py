"""The data set that a user's task brings along, as a source of samples for the preprocessors."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from statistics import fmean
from typing import Any

from fleet.run.ranks.packed_samples import SamplePacker, packing_of
from preprocess.files.modules import import_named
from preprocess.sources.map_style import check_map_style

_TRIED = 16  # samples that tell how long they are in the mean


class TaskData:
    """The map-style data set of `task.dataset(train)`; packed, with target 0, where the task collates samples itself.

    Args:
        task: module:Name of the task class.
        arguments: what the class is made with.
        train: the training samples, else the held-out ones.

    Attributes:
        ragged: where they are packed, bytes of the largest sample, and of some in the mean.
    """

    def __init__(self, task: str, arguments: Mapping[str, Any], train: bool) -> None:
        made = _made(task, arguments)
        self._data = made.dataset(train)
        self._packing = packing_of(made)
        if self._data is None:
            raise ValueError(f"{task}.dataset(train={train}) gives None")
        check_map_style(self._data, f"{task}.dataset(train={train})")
        self.ragged = None if self._packing is None else self._packing.ragged(_mean_bytes(self, self._packing))

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        sample = self._data[index]
        return sample if self._packing is None else (self._packing.pack(sample, index), 0)


def _mean_bytes(data: TaskData, packing: SamplePacker) -> float:
    """The mean of some samples spread over all; those that cannot be made say so when they are due."""
    sizes = []
    for number in range(min(_TRIED, len(data))):
        with suppress(Exception):
            sizes.append(data[number * len(data) // _TRIED if len(data) > _TRIED else number][0].nbytes)
    return fmean(sizes) if sizes else packing.most_bytes


def has_held_out(task: str, arguments: Mapping[str, Any]) -> bool:
    """Whether the task brings held-out samples."""
    return _made(task, arguments).dataset(False) is not None


def _made(task: str, arguments: Mapping[str, Any]) -> Any:
    module, _, name = task.partition(":")
    return getattr(import_named(module), name)(**arguments)
