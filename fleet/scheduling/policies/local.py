"""FLEET-L: free devices are filled at once (FLEET, MLSys'20, 4.3.3 and 6.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fleet.scheduling.flotillas.formation import check_delta, form_flotilla
from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.policy import Policy
from fleet.scheduling.model.state import State
from fleet.scheduling.placing.placement import place
from fleet.scheduling.policies.checks import check_flag


@dataclass(frozen=True)
class Local(Policy):
    """As soon as devices are free, form flotillas of waiting jobs on them; what runs is left alone.

    The paper does not say with which r_fast a job that fills released devices should keep up. Here it is the fastest of
    all unfinished jobs, also of those that run: it joins them.

    Args:
        delta: how close to the pace of the fastest the jobs must come that start together: samples/s, or text such as
            "12%", of its rate.
        literal: Algorithm 2 as printed, see `form_flotilla`.

    Raises:
        ValueError: a parameter out of its range.
    """

    name: ClassVar[str] = "local"
    shares_streams: ClassVar[bool] = True

    delta: float | str = "12%"
    literal: bool = False

    def __post_init__(self) -> None:
        check_delta(self.delta)
        check_flag("literal", self.literal)

    def plan(self, state: State) -> Plan:
        """Waiting ones on the free devices, while the running jobs go on."""
        placed: dict[str, tuple[int, ...]] = {}
        free, waiting, jobs = state.free, state.waiting, state.by_name
        staying = state.staying if state.unavailable else state.running
        while free and waiting:  # again where a flotilla leaves devices idle rather than take a job that slows it down
            flotilla = form_flotilla(waiting, len(free), self.delta, self.literal, map(jobs.__getitem__, staying))
            found = place(flotilla, state.cluster, free)
            placed |= found
            taken = {device for devices in found.values() for device in devices}
            free = [device for device in free if device not in taken]
            waiting = [job for job in waiting if job.name not in found]
        return Plan(placed, others_go_on=True)
