"""Small random traces and machines, and drivers that look over a policy's shoulder."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.policy import Plan, Policy, State, validate
from fleet.scheduling.policies.wrappers import WrappedPolicy
from fleet.simulator.traces import JobColumns, Trace, TraceJob

clusters = st.builds(lambda nodes, each: Cluster((each,) * nodes), st.integers(1, 4), st.sampled_from([1, 2, 4]))


@st.composite
def traces(draw: st.DrawFn, most: int = 10, devices: int = 4, tightness: tuple[float, float] = (0.5, 4.0)) -> Trace:
    """Jobs that come over 100 s, each for some seconds on its devices, some with a deadline."""
    jobs = []
    for index in range(draw(st.integers(1, most))):
        arrival, duration = draw(st.sampled_from([0.0, 10.0, 10.5]) | st.floats(0, 100)), draw(st.floats(1, 50))
        slack = draw(st.floats(*tightness) | st.none())
        jobs.append(
            TraceJob(
                f"job-{index}",
                arrival,
                draw(st.integers(1, devices)),
                duration=duration,
                deadline=None if slack is None else arrival + slack * duration,
                priority=draw(st.integers(0, 2)),
            )
        )
    return Trace.of(JobColumns.from_jobs(jobs))


class Watched(WrappedPolicy):
    """A policy whose plans are checked, and kept; `forgetful`: it never sees its memo again."""

    def __init__(self, policy: Policy, forgetful: bool = False) -> None:
        super().__init__(policy)
        self._forgetful = forgetful
        self.plans: list[Plan] = []

    def plan(self, state: State) -> Plan:
        plan = self._policy.plan(replace(state, memo=None, changed=()) if self._forgetful else state)
        validate(plan.whole_of(state.running), state)
        self.plans.append(plan)
        return plan
