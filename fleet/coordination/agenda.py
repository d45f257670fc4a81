"""When the policy is asked next, and what it does not know yet."""

from __future__ import annotations

import math

from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.trigger import Trigger


class Agenda:
    """Gathers what happens between two plans. Times are seconds of the run.

    Args:
        trigger: says how long events wait.
    """

    def __init__(self, trigger: Trigger) -> None:
        self._trigger = trigger
        self._changed: dict[str, None] = {}
        self._events = 0
        self._due = self._wake = -math.inf  # by the trigger, and by the policy's own wish; the first plan waits not
        self._memo: object = None
        self._ends: dict[str, float] = {}
        self.clearing = False  # all groups leave first
        self.measuring = False  # a job that came is measured first

    @property
    def next(self) -> float:
        """When to ask the policy."""
        return math.inf if self.clearing or self.measuring else min(self._due, self._wake)

    @property
    def changed(self) -> tuple[str, ...]:
        """Jobs that the last plan knew otherwise, each once."""
        return tuple(self._changed)

    @property
    def memo(self) -> object:
        """The policy's, of its last plan."""
        return self._memo

    def happened(self, now: float, *jobs: str, urgent: bool = False) -> None:
        """Something did that the policy should know of; its trigger says when."""
        self._events += 1
        self._changed.update(dict.fromkeys(jobs))
        self._due = min(self._due, self._trigger.due(now, self._events, urgent))

    def noted(self, job: str) -> None:
        """A job is otherwise than the last plan knew, which needs no other plan for that."""
        self._changed[job] = None

    def learnt(self, now: float, job: str, before: float, after: float, patience: float | None) -> bool:
        """More is known of a running job. The policy is asked if the job is promised and falls behind its plan.

        Args:
            before, after: when it will be done at its pace, as was thought until now, and as is known now.
            patience: seconds by which it may come later than was thought when the policy was asked last; None: it is
                promised nothing.

        Returns:
            Whether the policy is asked.
        """
        self._changed[job] = None
        if patience is None or after <= self._ends.setdefault(job, before) + patience:
            return False
        del self._ends[job]
        self.happened(now)
        return True

    def started(self, job: str) -> None:
        """A job has other devices, and another end ahead."""
        self._ends.pop(job, None)

    def planned(self, plan: Plan) -> None:
        """The policy knows everything now."""
        self._ends = {}
        self._changed, self._events, self._memo = {}, 0, plan.memo
        self._due, self._wake = math.inf, plan.wake
