"""What jobs need, found once for all that differ in nothing on which it depends."""

from __future__ import annotations

import json

import torch

from fleet.profiling.sizing import Size, size_of
from fleet.run.ranks.runtime import Runtime
from fleet.spec import Job
from fleet.spec.data_keys import data_key
from trainers.repeatable.no_exit import no_exit
from trainers.task.parts import rules_of

_NO_MATTER = {
    "name", "seed", "subset", "folds", "fold", "bag", "metrics", "schedule", "virtual_workers", "stop", "deadline",
    "soft", "user", "priority", "guaranteed", "minimum_devices", "service_level", "arrival",
}  # fmt: skip
_RATES = ("lr", "weight_decay")  # torch's optimizers need as much with any of them


class KnownSizes:
    """Sizes that were found. Trials of a search, of which most differ in their rates alone, have the same."""

    def __init__(self) -> None:
        self._found: dict[str, Size] = {}

    def of(self, runtime: Runtime, name: str) -> Size:
        """The size of a job of the runtime; whatever its code raises."""
        key, task = _key(runtime.job(name)), runtime.task(name)
        if key is not None and key in self._found:
            with no_exit(), torch.device("meta"):
                rules_of(task, task.model())  # whose arguments may be such as nothing can be made of
            return self._found[key]
        found = size_of(task, runtime.data_of(name).layout)
        if key is not None:
            self._found[key] = found
        return found


def _key(job: Job) -> str | None:
    """What a size depends on; None: on a person's code, which may look at anything."""
    optimizer = job.optimizer
    if job.task is not None or optimizer is None:
        return None
    told = job.model_dump(mode="json", exclude=_NO_MATTER)
    if ":" not in optimizer.name:
        arguments = {key: value for key, value in told["optimizer"]["arguments"].items() if key not in _RATES}
        told["optimizer"] = {**told["optimizer"], "arguments": arguments}
    return json.dumps([data_key(job), told], sort_keys=True)
