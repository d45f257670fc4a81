"""Whether a job leaves the last batch of an epoch out."""

from __future__ import annotations

from fleet.spec.job import Job
from fleet.spec.references import ReferenceProblem, resolve


def drops_last(job: Job) -> bool:
    """Whether each virtual worker does, where that batch has fewer samples: as the job says, else its task class."""
    if job.drop_last is not None or job.task is None or job.batch is not None:
        return bool(job.drop_last)
    try:
        return getattr(resolve(job.task.name), "drop_last", False) is True
    except ReferenceProblem:  # told where the spec is checked
        return False
