"""Random traces of jobs with deadlines, tight and loose, on random curves and machines."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster
from fleet.simulator.machines.machine import Costs, MeasuredMachine
from fleet.simulator.machines.rate_tables import RateTable
from fleet.simulator.traces import JobColumns, Trace, TraceJob

COUNTS = (1, 2, 4, 8, 16)


class Case(NamedTuple):
    """A trace and the machine that it is played on."""

    trace: Trace
    machine: MeasuredMachine


@st.composite
def rate_tables(draw: st.DrawFn) -> RateTable:
    """Three models: two concave curves, and one that rises and falls as it likes."""
    powers = [draw(st.floats(0.2, 1.0)) for _ in range(2)]
    measured = {(f"power-{i}", 1): {count: count**power for count in COUNTS} for i, power in enumerate(powers)}
    measured["wild", 1] = {count: draw(st.floats(0.5, 6.0)) for count in COUNTS}
    return RateTable(measured)


@st.composite
def cases(draw: st.DrawFn, most: int = 14, costs: tuple[float, ...] = (0.0, 0.3, 4.0)) -> Case:
    """Jobs that come over 60 s, most with a deadline between hopeless and 8 times what they need at best."""
    table = draw(rate_tables())
    cluster = Cluster((draw(st.sampled_from([1, 2, 4, 8])),) * draw(st.integers(1, 3)))
    jobs = []
    for index in range(draw(st.integers(1, most))):
        model = draw(st.sampled_from(table.models))
        arrival, samples = draw(st.sampled_from([0.0, 5.0]) | st.floats(0, 60)), draw(st.floats(1, 150))
        best = samples / float(table.rates(model, 1, cluster.size).max())
        slack = draw(st.floats(0.9, 8.0) | st.none())
        deadline = None if slack is None else arrival + slack * best
        gang = draw(st.integers(1, cluster.size))
        jobs.append(
            TraceJob(f"job-{index}", arrival, gang, model=model, batch_size=1, samples=samples, deadline=deadline)
        )
    costs_of_moves = Costs(draw(st.sampled_from(costs)), draw(st.sampled_from(costs)))
    return Case(Trace.of(JobColumns.from_jobs(jobs)), MeasuredMachine(cluster, table, costs_of_moves))


@st.composite
def crowds(draw: st.DrawFn) -> Case:
    """Jobs that come all at about the same time to nodes of a few devices, and whose moves cost some of their slack."""
    table, restart = draw(rate_tables()), draw(st.sampled_from([0.05, 0.3]))
    cluster = Cluster((draw(st.sampled_from([2, 4, 8])),) * draw(st.integers(2, 4)))
    jobs = []
    for index in range(draw(st.integers(4, 20))):
        model, arrival = draw(st.sampled_from(table.models)), draw(st.just(0.0) | st.floats(0, 3))
        samples, slack = draw(st.floats(0.3, 3)), draw(st.floats(1, 6) | st.none())
        best = samples / float(table.rates(model, 1, cluster.size).max())
        deadline = None if slack is None else arrival + restart + slack * best
        jobs.append(TraceJob(f"job-{index}", arrival, 1, model=model, batch_size=1, samples=samples, deadline=deadline))
    return Case(Trace.of(JobColumns.from_jobs(jobs)), MeasuredMachine(cluster, table, Costs(restart, restart)))
