"""Which keys of a job go together: rules on what is written, before it is a job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic_core import PydanticCustomError

from fleet.spec.metrics import declare_alone

NEEDED_WITH_MODEL = ("data", "optimizer")
STEP_OPTIONS = ("accumulate", "autocast", "clip_norm", "clip_value", "compile")
NOT_WITH_TASK = ("model", "memory_format", "optimizer", "schedule", "warm_up", "loss", "metrics", *STEP_OPTIONS)


def refuse_together(values: Mapping[str, Any], auto: bool, largest: bool) -> None:
    """Raise PydanticCustomError if more than one thing would choose the job's batch."""
    if (auto or largest) and any(values.get(key) is not None for key in ("batch", "batch_range")):
        raise PydanticCustomError(
            "chosen_with_batches",
            "{what} and a batch that the policy chooses exclude each other",
            {
                "what": "virtual_workers: auto" if auto else "batch_size: largest",
                "mend": f"give {'virtual_workers' if auto else 'batch_size'} a number; `fleet plan` without the range "
                "says which would do",
            },
        )
    if auto and largest:
        raise PydanticCustomError(
            "both_chosen",
            "virtual_workers: auto and batch_size: largest exclude each other",
            {"mend": "give one of them a number: how many workers are enough depends on the batch"},
        )


def incomplete(job: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(key, rule, mend) for each key that a job lacks, or has although its task says the same."""
    if job.get("model") is None and job.get("task") is None:
        yield "model", "a job needs a model or a task", "add `model: module:Name`"
    if job.get("task") is not None:
        for key in NOT_WITH_TASK:
            if job.get(key) and not (key == "metrics" and declare_alone(job[key])):
                yield key, f"not together with task: the task has its own {key}", f"take away `{key}` or `task`"
        return
    for key in NEEDED_WITH_MODEL:
        if job.get(key) is None:
            yield key, f"required key {key} is missing", f"add `{key}: ...` to the job or to defaults"
