"""Earliest deadline first (Liu and Layland, 1973; as a baseline in ElasticFlow, ASPLOS'23, 6.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.state import State
from fleet.scheduling.placing.resizing import resized
from fleet.scheduling.policies.checks import check_flag, check_seconds
from fleet.scheduling.policies.usual_policy import UsualPolicy
from fleet.scheduling.queues.earliest_deadline import ScaleOut, by_deadline, now_running


@dataclass(frozen=True)
class Edf(UsualPolicy):
    """The job with the nearest deadline takes as many devices as it can use, then the next; nobody is refused.

    A job whose deadline has passed stays first until it is done.

    Args:
        stop_at_peak: whether a job takes no more devices than make it faster, see `ScaleOut`.
        elastic: whether a job also runs on fewer devices than that.
        interval: seconds; what happens waits for the next multiple of it. 0: nothing waits.
    """

    name: ClassVar[str] = "edf"

    stop_at_peak: bool = False
    elastic: bool = True
    interval: float = 0.0

    def __post_init__(self) -> None:
        check_flag("stop_at_peak", self.stop_at_peak)
        check_flag("elastic", self.elastic)
        check_seconds("interval", self.interval)

    def plan(self, state: State) -> Plan:
        """The nearest deadlines first."""
        devices = state.capacity
        scale = ScaleOut(self.stop_at_peak, self.elastic)
        return Plan(resized(now_running(sorted(state.jobs, key=by_deadline), devices, scale), state))
