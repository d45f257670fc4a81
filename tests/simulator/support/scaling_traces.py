"""Small random traces whose jobs scale as measured ones do: concave, with a peak, or better than linear at first."""

from __future__ import annotations

from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster
from fleet.simulator.machines.rate_tables import RateTable
from fleet.simulator.traces import JobColumns, Trace, TraceJob

RATES = RateTable(
    {
        ("concave", 32): {1: 1.0, 2: 1.8, 4: 3.0, 8: 4.5, 16: 5.5},
        ("peaked", 32): {1: 2.0, 2: 3.0, 4: 3.5, 8: 3.0, 16: 2.0},
        ("jagged", 32): {1: 1.0, 2: 0.8, 4: 2.0, 8: 4.5, 16: 6.0},
    }
)
scaling_clusters = st.builds(
    lambda nodes, each: Cluster((each,) * nodes), st.integers(1, 4), st.sampled_from([1, 2, 4])
) | st.sampled_from([Cluster((3, 3)), Cluster((6,) * 3), Cluster((4, 2, 8)), Cluster((5,))])


@st.composite
def scaling_traces(draw: st.DrawFn, most: int = 12, deadlines: bool = False) -> Trace:
    """Jobs that come over 300 s, with work for some seconds on one device; some may have no deadline."""
    jobs = []
    for index in range(draw(st.integers(1, most))):
        arrival = draw(st.sampled_from([0.0, 20.0, 20.5, 60.0]) | st.floats(0, 300))
        work = draw(st.floats(1, 200) | st.integers(1, 200).map(float))
        tightness = draw(st.floats(0.1, 4.0) if deadlines else st.floats(0.1, 4.0) | st.none())
        jobs.append(
            TraceJob(
                f"job-{index}",
                arrival,
                draw(st.sampled_from([1, 2, 4])),
                model=draw(st.sampled_from(RATES.models)),
                batch_size=32,
                work=work,
                samples=work * 32,
                deadline=None if tightness is None else arrival + tightness * work,
            )
        )
    return Trace.of(JobColumns.from_jobs(jobs))
