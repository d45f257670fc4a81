"""What `fleet simulate` shows and writes of a comparison: its table, figures for plotly, page and files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import numpy.typing as npt

from fleet.report.rendering import (
    Figure,
    axis,
    escaped,
    layout,
    network_colours,
    page_environment,
    plotly,
    script_json,
    time_unit,
)
from fleet.report.rendering import FigureTrace as Line
from fleet.report.wording import duration
from fleet.simulator.comparing.compared_policies import Comparison, device_lines, job_lines, timeline_lines
from fleet.simulator.comparing.settings import Case, shape_of
from fleet.simulator.outcome import SimulationOutcome
from preprocess.files.writing import make_folder, write_parts, write_whole


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


Values = npt.NDArray[Any]
POINTS = 300
"""Points of a line."""


def comparison_figures(compared: Sequence[Column], colours: Mapping[str, str]) -> dict[str, Figure]:
    """Figures by name; figures without values are left out."""
    figures = {
        "utilisation": _over_time(compared, colours, "Devices held", lambda o: o.timeline.used / o.devices, share=True),
        "efficiency": _over_time(
            compared, colours, "Cluster efficiency", lambda o: o.timeline.speedup / o.devices, share=True
        ),
        "queue": _over_time(compared, colours, "Jobs that wait", lambda o: o.timeline.waiting),
        "completion": _completion(compared, colours),
        "deadlines": _deadlines(compared),
        "idle": _idle(compared, colours),
    }
    return {name: figure for name, figure in figures.items() if figure is not None}


def time_means(times: Values, values: Values, until: float, points: int = POINTS) -> tuple[Values, Values]:
    """A step function as the means over equal spans of time: the middles of the spans, and the means.

    Args:
        times: ascending; from each on the value beside it holds.
        until: where it ends.
    """
    edges = np.linspace(0.0, until, points + 1)
    inside = times < until
    times, values = times[inside], np.asarray(values, dtype=np.float64)[inside]
    whole = np.concatenate(([0.0], np.cumsum(values * np.diff(times, append=until))))
    passed = np.interp(edges, np.append(times, until), whole)
    return (edges[1:] + edges[:-1]) / 2, np.diff(passed) / np.diff(edges)


def _over_time(
    compared: Sequence[Column], colours: Mapping[str, str], title: str, value: Any, share: bool = False
) -> Figure | None:
    """A line for each policy, of its first seed."""
    shown = [(column.label, column.outcomes[0]) for column in compared if column.outcomes[0].makespan > 0]
    if not shown:
        return None
    unit, word = _unit(max(outcome.makespan for _, outcome in shown))
    lines = []
    for label, outcome in shown:
        middles, means = time_means(outcome.timeline.times, value(outcome), outcome.makespan)
        lines.append(_line(label, middles / unit, means, colours[label], f"{word.lower()} %{{x:.4~g}}", share))
    y = axis(title, rangemode="tozero", nticks=6, **({"tickformat": ",.0%"} if share else {}))
    return {"data": lines, "layout": layout(280, axis(word, rangemode="tozero"), y, hovermode="closest")}


def _completion(compared: Sequence[Column], colours: Mapping[str, str]) -> Figure | None:
    """Part of the finished jobs by completion time, all seeds together."""
    times = {c.label: np.sort(np.concatenate([outcome.jct for outcome in c.outcomes])) for c in compared}
    times = {label: found[found > 0] for label, found in times.items() if (found > 0).any()}
    if not times:
        return None
    unit, word = _unit(max(float(np.median(found)) for found in times.values()) * 4)
    shares: Values = np.linspace(0, 1, POINTS)
    lines = [
        _line(
            label,
            np.asarray(np.quantile(found, shares)) / unit,
            shares,
            colours[label],
            f"{word.lower()} %{{x:.4~g}}",
            True,
        )
        for label, found in times.items()
    ]
    x = axis(f"{word} from arrival to end", type="log", exponentformat="power")
    return {"data": lines, "layout": layout(300, x, axis("Jobs done", tickformat=",.0%", range=[0, 1.02]))}


def _deadlines(compared: Sequence[Column]) -> Figure | None:
    """Return what became of the jobs with a deadline: bars, the mean of all seeds."""
    parts = [(c.label, [found for outcome in c.outcomes if (found := _deadline_parts(outcome))]) for c in compared]
    parts = [(label, found) for label, found in parts if found]
    if not parts:
        return None
    labels = [escaped(label) for label, _ in parts]
    colours = {"met": "@good", "late": "@data", "dropped": "@idle"}
    bars = [
        {
            "type": "bar",
            "name": kind,
            "orientation": "h",
            "y": labels,
            "x": [fmean(found[kind] for found in seeds) for _, seeds in parts],
            "marker": {"color": colour},
            "hovertemplate": f"%{{y}}<br>{kind}: %{{x:.1%}}<extra></extra>",
        }
        for kind, colour in colours.items()
    ]
    y = axis(autorange="reversed", type="category")
    x = axis("Jobs with a deadline", tickformat=",.0%", range=[0, 1])
    return {"data": bars, "layout": layout(90 + 34 * len(labels), x, y, barmode="stack", bargap=0.35)}


def _deadline_parts(outcome: SimulationOutcome) -> dict[str, float] | None:
    having = np.isfinite(outcome.deadline)
    if not having.any():
        return None
    met, dropped = outcome.in_time[having].mean(), (outcome.dropped & having)[having].mean()
    return {"met": float(met), "late": float(1 - met - dropped), "dropped": float(dropped)}


def _idle(compared: Sequence[Column], colours: Mapping[str, str]) -> Figure | None:
    """Return how long devices wait for a job, from that which waits longest; the first seed."""
    shown = [(column.label, column.outcomes[0]) for column in compared if column.outcomes[0].makespan > 0]
    if not shown:
        return None
    unit, word = _unit(max(float(outcome.idle.max()) for _, outcome in shown))
    lines = []
    for label, outcome in shown:
        idle = np.sort(outcome.idle)[::-1] / unit
        places = np.unique(np.linspace(0, len(idle) - 1, min(POINTS, len(idle))).astype(np.int64))
        ranks = 1.0 + places.astype(np.float64)
        lines.append(_line(label, ranks, idle[places], colours[label], "device %{x:.0f}", False))
        lines[-1]["mode"] = "lines+markers" if len(idle) <= 64 else "lines"
    x = axis("Devices, from the one that waits longest", tickformat="d")
    return {"data": lines, "layout": layout(280, x, axis(f"{word} without a job", rangemode="tozero", nticks=6))}


def _line(label: str, x: Values, y: Values, colour: str, where: str, share: bool) -> Line:
    value = "%{y:.1%}" if share else "%{y:.4~g}"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": escaped(label),
        "meta": {"network": label},
        "x": _short(x),
        "y": _short(y),
        "line": {"color": colour, "width": 1.6},
        "marker": {"size": 4, "color": colour},
        "hovertemplate": f"<b>{escaped(label)}</b><br>{where}<br>{value}<extra></extra>",
    }


def _short(values: Values) -> list[float]:
    """Six digits are more than a screen shows."""
    return [float(f"{value:.6g}") for value in values.tolist()]


def _unit(seconds: float) -> tuple[float, str]:
    """Days where hours are many."""
    return (86400.0, "Days") if seconds > 14 * 86400 else time_unit(seconds)


def comparison_page(comparison: Comparison, outcomes: Sequence[SimulationOutcome], notes: Sequence[str] = ()) -> str:
    """The page as text; it needs no network to be read.

    Args:
        outcomes: in the order of the cases.
        notes: what a reader must know of the jobs.
    """
    compared = columns(comparison.cases, outcomes)
    colours = network_colours([column.label for column in compared])
    figures = comparison_figures(compared, colours)
    return (
        page_environment()
        .get_template("simulation.html.j2")
        .render(
            name=comparison.workload.name,
            shape=shape_of(comparison.cluster),
            devices=comparison.cluster.size,
            jobs=len(outcomes[0].names),
            costs=comparison.costs,
            failures=comparison.failures is not None,
            columns=compared,
            seeds=sorted({case.seed for case in comparison.cases}),
            rows=rows(compared),
            notes=notes,
            colours=colours,
            figures=figures,
            figures_json=script_json(figures),
            plotly=plotly() if figures else "",
        )
    )


PAGE, FIGURES, JOBS, TIMELINE, DEVICES = "report.html", "simulation.json", "jobs.csv", "timeline.csv", "devices.csv"


def comparison_json(comparison: Comparison, outcomes: Sequence[SimulationOutcome]) -> dict[str, Any]:
    """One object for one simulation, {"runs": [...]} for several."""
    runs = [
        outcome.summary() | {"seed": case.seed, "parameters": dict(case.parameters)}
        for case, outcome in zip(comparison.cases, outcomes, strict=True)
    ]
    return runs[0] if len(runs) == 1 else {"runs": runs}


def write_jobs(path: Path, comparison: Comparison, outcomes: Sequence[SimulationOutcome]) -> None:
    """Write one line a job and simulation, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    write_parts(path, job_lines(comparison.cases, outcomes))


def write_folder(
    folder: Path, comparison: Comparison, outcomes: Sequence[SimulationOutcome], notes: Sequence[str]
) -> None:
    """Write everything, each file whole or not at all; the page comes last.

    Raises:
        OSError: a file cannot be written.
    """
    make_folder(folder)
    cases = comparison.cases
    write_whole(folder / FIGURES, json.dumps(comparison_json(comparison, outcomes), indent=1) + "\n")
    write_jobs(folder / JOBS, comparison, outcomes)
    write_parts(folder / TIMELINE, timeline_lines(cases, outcomes))
    write_parts(folder / DEVICES, device_lines(cases, outcomes, comparison.cluster))
    write_whole(folder / PAGE, comparison_page(comparison, outcomes, notes))
