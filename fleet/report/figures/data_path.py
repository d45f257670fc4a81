"""The data path: throughput of the preprocessors against what the networks demand."""

from __future__ import annotations

from typing import Any

from fleet.journal.events import Preprocessors
from fleet.report.figures.layout import Figure, axis, layout
from fleet.report.wording import rate


def data_path_figure(preprocessing: Preprocessors | None) -> Figure | None:
    """One bar a number of preprocessors, the chosen one in colour, the demand as a line; None if not measured."""
    if preprocessing is None or not preprocessing.counts:
        return None
    counts = list(preprocessing.counts)
    bars = {
        "type": "bar",
        "x": [str(count) for count in counts],
        "y": list(preprocessing.counts.values()),
        "width": 0.5,
        "marker": {"color": ["@accent" if count == preprocessing.chosen else "@idle" for count in counts]},
        "text": [rate(value) for value in preprocessing.counts.values()],
        "textposition": "outside",
        "cliponaxis": False,
        "hovertemplate": "%{x} preprocessors: %{y:,.0f} samples/s<extra></extra>",
    }
    x = axis("Preprocessors", type="category", showgrid=False)
    top = 1.15 * max(*preprocessing.counts.values(), preprocessing.demand or 0.0)
    y = axis("Samples per second", range=[0, top], nticks=6)
    return {"data": [bars], "layout": layout(300, x, y, **_demand(preprocessing.demand))}


def _demand(demand: float | None) -> dict[str, Any]:
    if demand is None:
        return {}
    line = {"color": "@ink", "width": 1.5, "dash": "dash"}
    shape = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": demand, "y1": demand, "line": line}
    note = {
        "xref": "paper",
        "x": 0,
        "y": demand,
        "text": f"demand {rate(demand)}",
        "showarrow": False,
        "xanchor": "left",
        "yanchor": "bottom",
        "font": {"size": 12, "color": "@ink"},
    }
    return {"shapes": [shape], "annotations": [note]}
