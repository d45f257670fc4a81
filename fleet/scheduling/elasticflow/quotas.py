"""How much of the machine each user may have promised at a time (ElasticFlow, ASPLOS'23, 4.4)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.scheduling.elasticflow.promises import Promises
from fleet.scheduling.elasticflow.shares import slot_at
from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.state import State

EVERYBODY = "*"
"""Stands for each user who is not named."""


@dataclass(frozen=True)
class Quotas:
    """Device-seconds that may be set aside at a time for a user's unfinished jobs.

    So a user who submits many jobs with tight deadlines, which would fill the machine, is held to a part of it.

    Args:
        seconds: by user; `EVERYBODY`: of each other one. Who is not named has no limit.

    Raises:
        ValueError: a number that is not above 0.
    """

    seconds: Mapping[str, float]

    def __post_init__(self) -> None:
        for user, most in self.seconds.items():
            number = isinstance(most, (int, float)) and not isinstance(most, bool)
            if not (number and 0 < most < math.inf):
                raise ValueError(f"quotas of {user} is {most!r}; it must be a number of device-seconds above 0")

    def of(self, job: JobState) -> float:
        """What may be set aside for the job's user; infinite: no limit."""
        return self.seconds.get(job.tenant, self.seconds.get(EVERYBODY, math.inf))

    def refuses(self, job: JobState, wanted: float) -> str:
        """Why the job can never be promised anything: it needs more than its user may ever have; empty if it can."""
        most = self.of(job)
        if wanted <= most:
            return ""
        return f"its promise takes {wanted:,.0f} device-seconds, and {job.tenant or 'its user'} may have {most:,.0f}"

    def exceeds(self, book: Promises, job: JobState, state: State, slot: float) -> bool:
        """Whether the user's promises, that of the job among them, are more than may be set aside."""
        return self.of(job) < math.inf and promised_to(job.tenant, book, state, slot) > self.of(job)


def promised_to(user: str, book: Promises, state: State, slot: float) -> float:
    """Device-seconds that are set aside for a user's jobs from now on."""
    now, total = slot_at(state.time, slot), 0.0
    for name, claim in book.claims.items():
        if name in state.by_name and state.by_name[name].tenant == user:
            total += float(claim.devices[max(0, now - claim.share.first) :].sum()) * slot
    return total
