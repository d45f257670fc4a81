"""Random clusters, rate curves, jobs and states."""

from __future__ import annotations

from hypothesis import strategies as st

from fleet.scheduling import Policy
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import State
from fleet.scheduling.model.rates import RateCurve
from fleet.spec.policies import policy

POLICIES: list[Policy] = [
    policy("flotilla"),
    policy("flotilla", literal=True),
    policy("flotilla", alpha=1.0, delta=5),
    policy("flotilla", alpha=0.3, delta="0%"),
    policy("local"),
    policy("local", literal=True),
    policy("homogeneous"),
    policy("baseline"),
]

# Few different numbers, so that ties and plateaus are common.
rates = st.sampled_from([10.0, 20.0, 30.0, 33.0, 50.0, 97.0, 100.0, 176.0]) | st.floats(1, 200)


@st.composite
def curves(draw: st.DrawFn, limit: int) -> RateCurve:
    """Measured up to somewhere, falling and rising as it likes; a staircase at times."""
    workers = draw(st.sampled_from([None, limit]))
    kind = draw(st.sampled_from(["wild", "sublinear"]))
    if kind == "wild":
        counts = draw(st.sets(st.integers(1, limit), max_size=6)) | {1}
        measured = {count: draw(rates) for count in counts}
    else:
        single, efficiency = draw(rates), draw(st.sampled_from([0.6, 0.8, 0.97, 1.0]))
        last = draw(st.integers(1, limit))
        measured = {m: single * m * efficiency ** (m - 1) for m in range(1, last + 1)}
    return RateCurve(measured, per_node=4, limit=limit, workers=workers)


@st.composite
def jobs(draw: st.DrawFn, most: int = 12) -> tuple[JobState, ...]:
    made = []
    for index in range(draw(st.integers(0, most))):
        limit = draw(st.integers(1, 12))
        stream = draw(st.sampled_from(["a/0", "a/1", "b/0"]))
        made.append(
            JobState(f"job-{index}", draw(curves(limit)), limit, draw(st.integers(0, 3)), stream, data=stream[0])
        )
    return tuple(made)


clusters = st.builds(Cluster, st.lists(st.integers(1, 6), min_size=1, max_size=6).map(tuple)) | st.builds(
    lambda nodes, each: Cluster((each,) * nodes), st.integers(1, 5), st.sampled_from([1, 2, 4, 6])
)


@st.composite
def states(draw: st.DrawFn, idle: bool = False) -> State:
    """Any state that a driver could show: some jobs hold devices, some devices are lost."""
    cluster, unfinished = draw(clusters), draw(jobs())
    devices = draw(st.permutations(range(cluster.size)))
    lost = frozenset(draw(st.sets(st.sampled_from(range(cluster.size)), max_size=cluster.size // 2)))
    running: dict[str, tuple[int, ...]] = {}
    if not idle:
        for job in draw(st.permutations(unfinished)):
            count = draw(st.integers(0, min(job.limit, len(devices))))
            if count:
                running[job.name], devices = tuple(sorted(devices[:count])), devices[count:]
    formed = dict(running)
    if running and devices and draw(st.booleans()):
        formed["finished"] = tuple(sorted(devices))
    return State.of(cluster, unfinished, running, formed, lost, seed=draw(st.integers(0, 5)))
