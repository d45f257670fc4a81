"""Jobs that are awaited together end as early as they can, where those who would end last do not wait."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.scheduling import Policy
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.policies.wrappers import LeastLaxity
from fleet.simulator.machines.machine import MeasuredMachine
from fleet.simulator.simulation import Simulation
from fleet.simulator.traces import JobColumns, Trace, TraceJob
from fleet.spec.policies import policy

LATE = 0.15  # devices that are free within a twentieth of the time until the end are waited for, perhaps repeatedly


def makespan(seconds: list[float], devices: int, chosen: Policy) -> float:
    jobs = [TraceJob(f"job-{place}", 0.0, duration=each, devices=1) for place, each in enumerate(seconds)]
    trace = Trace(JobColumns.from_jobs(jobs))
    return Simulation(trace, MeasuredMachine(Cluster((devices,)), None, None), chosen).run().makespan


def test_three_alike_end_together_on_two_devices() -> None:
    assert makespan([6.0] * 3, 2, policy("fifo")) == pytest.approx(12)
    assert makespan([6.0] * 3, 2, LeastLaxity(policy("fifo"))) == pytest.approx(9)


@given(st.lists(st.floats(1.0, 100.0), min_size=1, max_size=12), st.integers(1, 5))
@settings(max_examples=200)
def test_no_schedule_ends_much_sooner(seconds: list[float], devices: int) -> None:
    least = max(max(seconds), sum(seconds) / devices)  # McNaughton
    found = makespan(seconds, devices, LeastLaxity(policy("fifo")))
    assert least * (1 - 1e-9) <= found <= least * (1 + LATE) + 1e-6
