"""ElasticFlow as its authors' program admits: all that arrive in a slot, or none (Gu et al., ASPLOS'23, artifact)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fleet.scheduling.elasticflow.promises import Promises
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import State, Trigger
from fleet.scheduling.policies.elasticflow import ElasticFlow

BEYOND_ITS_QUOTA = "its user has as much promised as the quota allows"


@dataclass(frozen=True)
class ElasticFlowSlot(ElasticFlow):
    """ElasticFlow, asked at the ends of slots; the jobs that came in one are admitted together, or all are dropped.

    Args:
        slot, reserve, order, quota, quotas: as for `ElasticFlow`; the order makes no difference, and who is beyond a
            quota is dropped.
    """

    name: ClassVar[str] = "elasticflow-slot"

    @property
    def trigger(self) -> Trigger:
        """At the end of each slot in which something has happened."""
        return Trigger(interval=self.slot)

    def _decide(
        self, book: Promises, new: list[JobState], state: State, capacity: int
    ) -> tuple[list[str], dict[str, str]]:
        if new and not book.admit_together(new, state, capacity):
            refused = {job.name: f"not all {len(new)} deadlines of the slot's jobs can be met" for job in new}
        else:
            refused = {job.name: why for job in new if (why := self._refused(book, job, state))}
            for job in reversed(new):  # who came last is beyond first
                if job.name not in refused and self._limits.exceeds(book, job, state, self.slot):
                    book.remove(job.name)
                    refused[job.name] = BEYOND_ITS_QUOTA
        for job in new:
            if job.name in refused and self._waits(job):
                book.queue(job)
        admitted = [job.name for job in new if job.name not in refused]
        return admitted, {job.name: refused[job.name] for job in new if job.name in refused and not self._waits(job)}
