"""What jobs need, found once for all that differ in nothing on which it depends."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import nn

from fleet.profiling.sizing import KnownOperators, Size, size_of
from fleet.spec import Job
from fleet.spec.job import data_key
from fleet.workers.runtime import Runtime
from trainers.repeatable.no_exit import no_exit
from trainers.task.parts import rules_of

_NO_MATTER = {
    "name", "seed", "subset", "folds", "fold", "bag", "metrics", "schedule", "virtual_workers", "stop", "deadline",
    "soft", "user", "priority", "guaranteed", "minimum_devices", "service_level", "arrival",
}  # fmt: skip
_NO_RULE = _NO_MATTER - {"subset", "folds", "fold", "bag", "schedule", "virtual_workers", "stop"}
"""What, beside, no optimizer and no schedule depends on, which may be as long as the run."""
_RATES = ("lr", "weight_decay")  # torch's optimizers need as much with any of them
_KEPT = 64  # networks, and jobs that were asked for last


class KnownSizes:
    """Sizes that were found. Trials of a search, of which most differ in their rates alone, have the same."""

    def __init__(self) -> None:
        self._found: dict[str, Size] = {}
        self._operators = KnownOperators()
        self._networks: dict[str, nn.Module] = {}  # on torch's meta device
        self._last: dict[str, Size] = {}

    def of(self, runtime: Runtime, name: str) -> Size:
        """The size of a job of the runtime; whatever its code raises."""
        job = runtime.job(name)
        key = _key(job)
        if key is None:
            return size_of(runtime.task(name), runtime.data_of(name).layout, self._operators)
        whole = json.dumps([data_key(job), job.model_dump(mode="json", exclude=_NO_RULE)], sort_keys=True)
        if whole not in self._last:
            _keep(self._last, whole, self._of_its_kind(runtime, name, key))
        return self._last[whole]

    def _of_its_kind(self, runtime: Runtime, name: str, key: str) -> Size:
        """The size of all jobs of this key; the job's own arguments may be such as nothing can be made of."""
        task = runtime.task(name)
        if key not in self._found:
            self._found[key] = size_of(task, runtime.data_of(name).layout, self._operators)
            return self._found[key]
        with no_exit(), torch.device("meta"):
            if key not in self._networks:
                _keep(self._networks, key, task.model())
            rules_of(task, self._networks[key])
        return self._found[key]


def _keep(known: dict[str, Any], key: str, value: Any) -> None:
    """Keep one more, and the oldest no longer."""
    known[key] = value
    if len(known) > _KEPT:
        del known[next(iter(known))]


def _key(job: Job) -> str | None:
    """What a size depends on; None: on a person's code, which may look at anything."""
    optimizer = job.optimizer
    if job.task is not None or optimizer is None:
        return None
    told = job.model_dump(mode="json", exclude=_NO_MATTER)
    if optimizer.name is not None and ":" not in optimizer.name:
        arguments = {key: _matters(value) for key, value in optimizer.arguments.items() if key not in _RATES}
        told["optimizer"] = {**told["optimizer"], "arguments": arguments}
    return json.dumps([data_key(job), told], sort_keys=True)


def _matters(value: Any) -> Any:
    """What of an argument of torch's optimizers matters: of one with decimals, such as momentum, whether it is 0."""
    if isinstance(value, (list, tuple)):
        return [_matters(each) for each in value]
    return f"{value != 0}" if isinstance(value, float) else value
