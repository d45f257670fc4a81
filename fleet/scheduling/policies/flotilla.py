"""FLEET-G: flotillas on the whole machine (FLEET, MLSys'20, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fleet.scheduling.flotillas.formation import check_delta, form_flotilla
from fleet.scheduling.flotillas.useful_work import useful_work
from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.policy import Policy
from fleet.scheduling.model.state import Allocation, State
from fleet.scheduling.placing.placement import place
from fleet.scheduling.policies.checks import check_flag, check_share

_ROUNDING = 1e-9
GAIN = 1.1
"""So many times as much useful work a new flotilla must do, to be worth ending a round whose rates turn out others."""


@dataclass(frozen=True)
class Flotilla(Policy):
    """Train one flotilla after another; end each once few of its devices are still at work.

    A round goes on while its jobs hold at least `alpha` of the devices with which it began. Then all of them stop, and
    a new flotilla is formed of all unfinished jobs. Unless `literal`, the round also goes on when no job waits and
    forming anew would give each job the count that it has. It ends sooner, unless `literal`, where training has told
    rates of its members that were guesses, and a flotilla formed anew would do a tenth more useful work.

    Args:
        alpha: share of the flotilla's devices below which the round ends; above 0, at most 1.
        delta: how close the paces of members must be: samples/s, or text such as "12%", of the fastest job's rate.
        literal: Algorithm 2 as printed, see `form_flotilla`.

    Raises:
        ValueError: a parameter out of its range.
    """

    name: ClassVar[str] = "flotilla"
    shares_streams: ClassVar[bool] = True

    alpha: float = 0.8
    delta: float | str = "12%"
    literal: bool = False

    def __post_init__(self) -> None:
        check_share("alpha", self.alpha)
        check_delta(self.delta)
        check_flag("literal", self.literal)

    def plan(self, state: State) -> Plan:
        """What should run from now on: the round's jobs, nothing while it drains, or a new flotilla."""
        if not state.running:
            return Plan(place(self._counts(state), state.cluster, state.available))
        staying = state.staying
        return Plan(staying if self._goes_on(state, staying) else {})

    def _counts(self, state: State) -> dict[str, int]:
        return form_flotilla(state.jobs, len(state.available), self.delta, self.literal)

    def _goes_on(self, state: State, staying: Allocation) -> bool:
        held = sum(map(len, staying.values()))
        counts = {name: len(devices) for name, devices in staying.items()}
        if held >= self.alpha * sum(map(len, state.formed.values())) - _ROUNDING:
            return self.literal or state.refined.isdisjoint(staying) or not self._gains(state, counts)
        if self.literal or len(staying) < len(state.jobs):
            return False
        return self._counts(state) == counts

    def _gains(self, state: State, counts: Mapping[str, int]) -> bool:
        """Whether a flotilla formed anew does so much more than this one that its forming is worth it."""
        anew = self._counts(state)
        return anew != counts and useful_work(state.jobs, anew) >= GAIN * useful_work(state.jobs, counts)
