"""The figures over time and of every device, as comma-separated text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from fleet.scheduling.model.cluster import Cluster
from fleet.simulator.comparing.cases import Case
from fleet.simulator.outcome import SimulationOutcome
from fleet.simulator.tables.job_table import LINE_END, ROWS_AT_ONCE

TIMELINE = ("policy", "seed", "time", "devices", "waiting", "speedup")
DEVICES = ("policy", "seed", "device", "node", "kind", "held", "idle")


def timeline_lines(cases: Sequence[Case], outcomes: Sequence[SimulationOutcome]) -> Iterator[str]:
    """One line a plan: from that second on so many devices are held, so many jobs wait, and so fast are all of them."""
    rows = (
        (case.label, case.seed, *seen)
        for case, outcome in zip(cases, outcomes, strict=True)
        for seen in zip(*(values.tolist() for values in _seen(outcome)))
    )
    return _text(TIMELINE, rows)


def device_lines(cases: Sequence[Case], outcomes: Sequence[SimulationOutcome], cluster: Cluster) -> Iterator[str]:
    """One line a device: seconds that jobs held it, and seconds until the makespan without one."""
    places = [(device, node) for node in range(cluster.nodes) for device in cluster.devices_of(node)]
    rows = (
        (case.label, case.seed, device, node, cluster.kinds[node] if cluster.kinds else "", held, idle)
        for case, outcome in zip(cases, outcomes, strict=True)
        for (device, node), held, idle in zip(places, outcome.held.tolist(), outcome.idle.tolist())
    )
    return _text(DEVICES, rows)


def _seen(outcome: SimulationOutcome) -> tuple[Any, ...]:
    timeline = outcome.timeline
    return timeline.times, timeline.used, timeline.waiting, timeline.speedup


def _text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Some thousand lines at a time."""
    yield ",".join(columns) + LINE_END
    rows = iter(rows)
    while part := list(islice(rows, ROWS_AT_ONCE)):
        text = io.StringIO()
        csv.writer(text, lineterminator=LINE_END).writerows(part)
        yield text.getvalue()
