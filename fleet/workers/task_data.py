"""The data set that a user's task brings along, as a source of samples for the preprocessors."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from statistics import fmean
from typing import Any

from fleet.workers.packed_samples import SamplePacker, packing_of
from preprocess import SourceError
from preprocess.files.modules import import_named
from preprocess.samples.order import global_generators_seeded
from preprocess.sources.map_style import check_map_style

_TRIED = 16  # samples that tell how long they are in the mean


class TaskData:
    """The map-style data set of `task.dataset(train)`; packed, with target 0, where the task collates samples itself.

    Args:
        what: how errors name it.
        task: the task.
        data: what its `dataset` gave.

    Attributes:
        ragged: where they are packed, bytes of the largest sample, and of some in the mean.
        drawn_by: the weights by which the task says that training samples are drawn; None: each comes once.
    """

    drawn_by: Any = None

    def __init__(self, what: str, task: Any, data: Any) -> None:
        check_map_style(data, what)
        self._data, self._packing = data, packing_of(task)
        self.ragged = None if self._packing is None else self._packing.ragged(_mean_bytes(self, self._packing))

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        sample = self._data[index]
        return sample if self._packing is None else (self._packing.pack(sample, index), 0)


def training_data(task: str, arguments: Mapping[str, Any]) -> TaskData:
    """Construct the training samples of `module:Name`, a task class that is made with these arguments."""
    found = _constructed(task, arguments, True)
    if found is None:
        raise ValueError(f"{task}.dataset(train=True) gives None")
    return found


def held_out_data(task: str, arguments: Mapping[str, Any], seed: int) -> TaskData | None:
    """Construct the held-out samples, as `open_items` does; None where the task has none.

    Raises:
        SourceError: the task's code raises, or gives what cannot be read by index.
    """
    try:
        with global_generators_seeded(seed):
            return _constructed(task, arguments, False)
    except SourceError:
        raise
    except Exception as cause:  # the user's code may raise anything
        rule = f"its dataset(False) raised {type(cause).__name__}: {cause}"
        raise SourceError(
            task, rule, "mend the task; where nothing is held out, let dataset(False) give None"
        ) from cause


def _constructed(task: str, arguments: Mapping[str, Any], train: bool) -> TaskData | None:
    module, _, name = task.partition(":")
    made = getattr(import_named(module), name)(**arguments)
    found = made.dataset(train)
    if found is None:
        return None
    data = TaskData(f"{task}.dataset(train={train})", made, found)
    data.drawn_by = made.sample_weights(found) if train and hasattr(made, "sample_weights") else None
    return data


def _mean_bytes(data: TaskData, packing: SamplePacker) -> float:
    """The mean of some samples spread over all; those that cannot be made say so when they are due."""
    sizes = []
    for number in range(min(_TRIED, len(data))):
        with suppress(Exception):
            sizes.append(data[number * len(data) // _TRIED if len(data) > _TRIED else number][0].nbytes)
    return fmean(sizes) if sizes else packing.most_bytes
