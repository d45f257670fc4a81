"""First come, first served, in gangs (the capacity scheduler of YARN, as in EasyScale, SC'23, 5.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.policy import Policy
from fleet.scheduling.model.state import State
from fleet.scheduling.policies.checks import check_flag
from fleet.scheduling.queues.gang import hopeless_gang, take_gang
from fleet.scheduling.queues.waiting_line import WaitingLine


@dataclass(frozen=True)
class Fifo(Policy):
    """Each job gets all devices that it asks for, once those before it have theirs; nobody is stopped.

    All its devices are of one kind: that which it prefers. A job that asks for more than there are is dropped.

    Args:
        backfill: whether a job may go before one that does not fit yet.

    Raises:
        ValueError: a parameter out of its range.
    """

    name: ClassVar[str] = "fifo"
    knows_kinds: ClassVar[bool] = True
    keeps_minimum: ClassVar[bool] = True

    backfill: bool = False

    def __post_init__(self) -> None:
        check_flag("backfill", self.backfill)

    def plan(self, state: State) -> Plan:
        """The first of the line on the devices that are free."""
        free, line = state.free_devices(), WaitingLine.of(state)
        placed: dict[str, tuple[int, ...]] = {}
        dropped: dict[str, str] = {}
        passed: list[JobState] = []
        for job in line.take(state):
            devices = take_gang(job, state.cluster, free)
            if devices is not None:
                placed[job.name] = devices
            elif (reason := hopeless_gang(job, state.cluster)) is not None:
                dropped[job.name] = reason
            else:
                passed.append(job)
                if not (self.backfill and free.count):
                    break
        for job in passed:
            line.back(job)
        return Plan(placed, others_go_on=True, dropped=dropped, memo=line)
