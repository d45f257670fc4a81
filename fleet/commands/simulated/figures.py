"""Figures of a comparison, for plotly: as many points as an eye can tell apart, however many jobs there were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from fleet.commands.simulated.side_by_side import Column
from fleet.report.rendering import Figure, axis, escaped, layout, time_unit
from fleet.report.rendering import FigureTrace as Line
from fleet.simulator.outcome import SimulationOutcome

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
    """What became of the jobs with a deadline: bars, the mean of all seeds."""
    parts = [(c.label, [found for outcome in c.outcomes if (found := _deadline_parts(outcome))]) for c in compared]
    parts = [(label, found) for label, found in parts if found]
    if not parts:
        return None
    labels = [escaped(label) for label, _ in parts]
    colours = {"met": "@good", "late": "@data", "dropped": "@idle"}
    bars = [
        {
            "type": "bar", "name": kind, "orientation": "h", "y": labels,
            "x": [fmean(found[kind] for found in seeds) for _, seeds in parts],
            "marker": {"color": colour}, "hovertemplate": f"%{{y}}<br>{kind}: %{{x:.1%}}<extra></extra>",
        }
        for kind, colour in colours.items()
    ]  # fmt: skip
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
    """How long devices wait for a job, from that which waits longest; the first seed."""
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
