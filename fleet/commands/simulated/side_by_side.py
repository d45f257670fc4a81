"""The figures of several outcomes side by side: one column a policy; of several seeds the median, least and most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from fleet.report.wording import duration
from fleet.simulator.comparing.settings import Case
from fleet.simulator.outcome import SimulationOutcome


def _count(value: float) -> str:
    """12,345; with a decimal where it has one."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def percent(value: float) -> str:
    """74.9 %."""
    return f"{100 * value:.1f} %"


def _plain(value: float) -> str:
    """Three digits that matter."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def milliseconds(value: float) -> str:
    """0.047 ms."""
    return f"{_plain(1000 * value)} ms"


_METRICS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("jobs", "jobs", _count),
    ("finished", "done", _count),
    ("admitted", "admitted", _count),
    ("dropped", "dropped", _count),
    ("drop_ratio", "drop ratio", percent),
    ("deadline_ratio", "deadlines met", percent),
    ("late_admitted", "admitted, but late", _count),
    ("avg_jct", "mean completion time", duration),
    ("p99_jct", "99th percentile of it", duration),
    ("makespan", "makespan", duration),
    ("avg_wait", "mean wait for the first device", duration),
    ("avg_queue", "jobs that wait, mean", _plain),
    ("median_fairness", "finish-time fairness, median", _plain),
    ("max_fairness", "finish-time fairness, worst", _plain),
    ("restarts_per_job", "restarts a job", _plain),
    ("gpu_hours", "device-hours", _plain),
    ("utilisation", "utilisation", percent),
    ("cluster_efficiency", "cluster efficiency", percent),
    ("sjs_efficiency", "SJS efficiency", percent),
    ("avg_idle", "wait of a device, mean", duration),
    ("max_idle", "wait of a device, longest", duration),
    ("p99_plan_seconds", "99th percentile of a plan's time", milliseconds),
    ("seconds", "simulated in", duration),
)
"""Key of `SimulationOutcome.summary`, what people call it, how it is written."""


@dataclass(frozen=True)
class Column:
    """The outcomes of one policy with one set of parameters, by seed."""

    label: str
    cases: tuple[Case, ...]
    outcomes: tuple[SimulationOutcome, ...]


def columns(cases: Sequence[Case], outcomes: Sequence[SimulationOutcome]) -> tuple[Column, ...]:
    """One for each label, in the order in which they first stand."""
    found: dict[str, list[int]] = {}
    for place, case in enumerate(cases):
        found.setdefault(case.label, []).append(place)
    return tuple(
        Column(label, tuple(cases[i] for i in places), tuple(outcomes[i] for i in places))
        for label, places in found.items()
    )


def rows(compared: Sequence[Column]) -> list[tuple[str, list[str]]]:
    """What people call a metric, and its cell in each column; metrics of which nobody has anything are left out."""
    summaries = [[outcome.summary() for outcome in column.outcomes] for column in compared]
    table = []
    for key, title, written in _METRICS:
        cells = [_cell([summary.get(key) for summary in column], written) for column in summaries]
        if any(cell != "-" for cell in cells):
            table.append((title, cells))
    return table


def _cell(values: Sequence[float | None], written: Callable[[float], str]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    least, middle, most = (written(value) for value in (min(known), median(known), max(known)))
    return middle if least == most else f"{middle} ({least} to {most})"
