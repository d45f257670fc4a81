"""The data set that a user's task brings along, as a source of samples for the preprocessors."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any


class TaskData:
    """The map-style data set of `task.dataset(train)`.

    Args:
        task: module:Name of the task class.
        arguments: what the class is made with.
        train: the training samples, else the held-out ones.
    """

    def __init__(self, task: str, arguments: Mapping[str, Any], train: bool) -> None:
        module, _, name = task.partition(":")
        self._data = getattr(importlib.import_module(module), name)(**arguments).dataset(train)
        if self._data is None:
            raise ValueError(f"{task}.dataset(train={train}) gives None")

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._data[index]  # type: ignore[no-any-return]


def has_held_out(task: str, arguments: Mapping[str, Any]) -> bool:
    """Whether the task brings held-out samples."""
    module, _, name = task.partition(":")
    return getattr(importlib.import_module(module), name)(**arguments).dataset(False) is not None
