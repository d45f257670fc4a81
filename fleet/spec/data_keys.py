"""The names under which a run's data sets are opened."""

from __future__ import annotations

import hashlib
import json

from fleet.spec.job import Job


def data_key(job: Job) -> str:
    """The name under which a job's samples are made: its entry in `data`, or its own task's data set."""
    if job.data is not None:
        return job.data
    assert job.task is not None
    digest = hashlib.blake2b(
        json.dumps(job.task.model_dump(mode="json"), sort_keys=True).encode(), digest_size=4
    ).hexdigest()
    return f"{job.task.name}#{digest}"


def is_own(key: str) -> bool:
    """Whether a data set is a task's own, of which the spec's `data` says nothing."""
    return "#" in key
