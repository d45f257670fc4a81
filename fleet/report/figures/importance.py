"""How much each parameter of a search matters, as bars."""

from __future__ import annotations

from fleet.report.figures.layout import Figure, axis, escaped, layout
from fleet.report.importance import Importance

MOST = 20


def importance_figure(importance: Importance) -> Figure | None:
    """The parameters that matter most, the first on top; None where nothing can be said."""
    shown = list(importance.shares.items())[:MOST]
    if not shown:
        return None
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": [share for _, share in shown],
        "y": [escaped(name) for name, _ in shown],
        "width": 0.62,
        "marker": {"color": "@accent"},
        "text": [f"{share:.0%}" for _, share in shown],
        "textposition": "outside",
        "cliponaxis": False,
        "hovertemplate": "%{y}: %{x:.1%}<extra></extra>",
    }
    x = axis(tickformat=",.0%", range=[0, 1.12 * max(max(share for _, share in shown), 1e-9)], nticks=5)
    y = axis(type="category", autorange="reversed", showgrid=False)
    return {"data": [bars], "layout": layout(70 + 30 * len(shown), x, y)}
