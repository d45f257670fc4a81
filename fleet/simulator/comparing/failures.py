"""Failures of nodes: read from a file, or drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fleet.scheduling.model.cluster import Cluster
from fleet.simulator.comparing.settings import number, read_settings
from fleet.simulator.node_failure import NodeFailure
from fleet.simulator.traces.draws import generator
from fleet.simulator.traces.table import read_table
from fleet.simulator.traces.trace import Trace

DAY = 86400.0
_LATER = 30 * DAY
"""How long after the last arrival drawn failures go on, if nothing else is said, seconds."""
_EXAMPLE = "mean=86400,repair=3600"
_COLUMNS = ("time", "node")
_MOST = 5_000_000


@dataclass(frozen=True)
class DrawnFailures:
    """Every node fails again and again, independently; times to failure are exponential (as in a Poisson process).

    Attributes:
        mean: seconds from a repair to the next failure of a node.
        repair: seconds that a repair takes.
        until: seconds since the first arrival after which nothing fails; None: 30 days after the last arrival.

    Raises:
        ValueError: a number that no node can have.
    """

    mean: float
    repair: float = 3600.0
    until: float | None = None

    def __post_init__(self) -> None:
        for name in ("mean", "repair", "until"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"failures: {name} is {value} s; it must be above 0, and finite")

    def draw(self, cluster: Cluster, trace: Trace, seed: int) -> tuple[NodeFailure, ...]:
        """The failures by time; seed path (seed, "failure").

        Raises:
            ValueError: there would be more than can be played.
        """
        until = self.until if self.until is not None else float(trace.jobs.arrival[-1]) + _LATER
        each = math.ceil(until / (self.mean + self.repair)) + 1
        if each * cluster.nodes > _MOST:
            raise ValueError(
                f"failures: a mean of {self.mean:g} s gives millions of them in {until:g} s; name a larger"
            )
        gaps = generator(seed, "failure").standard_exponential((cluster.nodes, 4 * each + 16)) * self.mean
        times = np.cumsum(gaps + self.repair, axis=1) - self.repair
        found = [
            NodeFailure(time, node, time + self.repair)
            for node, row in enumerate(times.tolist())
            for time in row
            if time < until
        ]
        return tuple(sorted(found, key=lambda failure: (failure.time, failure.node)))


def failures_of(text: str) -> DrawnFailures | Path:
    """What `--failures` says: a file, or mean=...,repair=...,until=...

    Raises:
        ValueError: a name that is not known, or no number.
    """
    if "=" not in text or Path(text).exists():
        return Path(text)
    given = read_settings(text, _EXAMPLE)
    known = ("mean", "repair", "until")
    for name in given:
        if name not in known:
            raise ValueError(
                f"failures: {name!r} is not known; write {_EXAMPLE}, or name a file; known: {', '.join(known)}"
            )
    if "mean" not in given:
        raise ValueError(f"failures: the mean seconds between two failures of a node are missing; write {_EXAMPLE}")
    return DrawnFailures(**{name: number(f"failures: {name}", value) for name, value in given.items()})


def read_failures(path: Path, cluster: Cluster) -> tuple[NodeFailure, ...]:
    """Read the columns time, node (from 0) and until; an empty `until` is never. Seconds since the first arrival.

    Raises:
        TraceError: with every cell that is wrong.
    """
    table = read_table(path)
    table.require(_COLUMNS, "failures")
    time, node = table.numbers("time", least=0), table.numbers("node", least=0, whole=True)
    until = table.numbers("until", least=0, optional=True)
    table.check(
        ~(node >= cluster.nodes), "node", f"the cluster's nodes are 0 to {cluster.nodes - 1}", "name one of these"
    )
    table.check(~(until <= time), "until", "it works again before it fails", "correct one of the two")
    table.finish()
    ends = np.where(np.isnan(until), math.inf, until)
    return tuple(
        NodeFailure(at, int(where), end) for at, where, end in sorted(zip(time.tolist(), node.tolist(), ends.tolist()))
    )
