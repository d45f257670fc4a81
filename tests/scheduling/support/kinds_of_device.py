"""Jobs whose speed depends on the kind of device, random and by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import State
from fleet.scheduling.model.rates import RateCurve

MIXED = Cluster((4, 2, 2), ("fast", "slow", "slow"))


@dataclass(frozen=True)
class Speeds:
    """A `Scaling`: mini-batches/s by kind."""

    of: Mapping[str, float]

    def rate(self, devices: int, batch: int | None = None, nodes: int = 1) -> float:
        return devices * max(self.of.values())

    def worker_rate(self, kind: str) -> float:
        return self.of[kind]


def job(name: str, workers: int = 8, fast: float = 2.0, slow: float = 1.0, **more: Any) -> JobState:
    """A job of mini-batches of one sample, so that mini-batches/s are samples/s."""
    curve = RateCurve({1: fast}, 4, workers=workers)
    more = {"mixed_kinds": True, "batch": workers, "kind": "fast", **more}
    return JobState(name, curve, workers, scaling=Speeds({"fast": fast, "slow": slow}), **more)


speeds = st.sampled_from([1.0, 1.5, 2.0, 2.45]) | st.floats(0.2, 5)


@st.composite
def states(draw: st.DrawFn, least: bool = False) -> State:
    """Jobs on two kinds of device; some run, some are guaranteed, all at a time when plans are made.

    Args:
        least: whether they need some number of devices at least.
    """
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=5))
    cluster = Cluster(tuple(sizes), tuple("fast" if i % 2 == 0 else "slow" for i in range(len(sizes))))
    free = list(range(cluster.size))
    jobs, running = [], {}
    for index in range(draw(st.integers(1, 6))):
        workers, guaranteed = draw(st.integers(1, 8)), draw(st.integers(0, 3)) == 0
        one = job(
            f"job-{index}", workers, draw(speeds), draw(speeds), arrival=float(index), guaranteed=guaranteed,
            mixed_kinds=draw(st.booleans()), kind=draw(st.sampled_from(["fast", "slow", ""])),
            gang=draw(st.integers(1, workers)), priority=float(draw(st.integers(0, 1))),
        )  # fmt: skip
        if least:
            one = one.changed(minimum_devices=draw(st.integers(1, one.gang)))
        jobs.append(one)
        home = "fast" if one.kind == "" else one.kind
        fitting = [d for d in free if one.mixed_kinds or cluster.kind_of(d) == home]
        count = draw(st.integers(0, min(workers, len(fitting))))
        if guaranteed:
            count = one.gang if count >= one.gang else 0
        count = count if count >= one.minimum_devices else 0
        if count and not (one.kind == "" and not one.mixed_kinds):
            taken = draw(st.permutations(fitting))[:count]
            running[one.name] = tuple(sorted(taken))
            free = [d for d in free if d not in taken]
    return State.of(cluster, jobs, running, time=120.0)
