"""What all figures have in common."""

from __future__ import annotations

import html
from typing import Any

from fleet.report.wording import printable

Figure = dict[str, Any]
FigureTrace = dict[str, Any]


def escaped(text: str) -> str:
    """`text` for plotly, which reads texts as HTML."""
    return html.escape(printable(text))


def axis(title: str = "", **keys: Any) -> dict[str, Any]:
    """One axis; its colours are the page's."""
    return {
        "title": {"text": title, "standoff": 10, "font": {"size": 13, "color": "@muted"}},
        "gridcolor": "@rule",
        "linecolor": "@rule",
        "zerolinecolor": "@rule",
        "tickfont": {"size": 12, "color": "@muted"},
        "automargin": True,
        **keys,
    }


def whole_ticks(first: int, last: int, most: int = 10) -> dict[str, Any]:
    """Ticks at whole numbers, at most `most` and a bit of them; a screen of a phone takes every other one."""
    step = max(1, -(-(last - first + 1) // most))
    return {"tickmode": "linear", "tick0": first, "dtick": step, "tickformat": "d"}


def time_unit(wall: float) -> tuple[float, str]:
    """Seconds for short runs, then minutes, then hours: the divisor and the word."""
    if wall < 600:
        return 1.0, "Seconds"
    return (60.0, "Minutes") if wall < 4 * 3600 else (3600.0, "Hours")


def layout(height: int, x: dict[str, Any], y: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """A calm layout without legend, `height` pixels high, as wide as the page."""
    return {
        "height": height,
        "margin": {"l": 8, "r": 12, "t": 12, "b": 8, "pad": 0},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "@ink", "size": 13},
        "hoverlabel": {"bgcolor": "@surface", "bordercolor": "@rule", "font": {"color": "@ink"}, "align": "left"},
        "showlegend": False,
        "xaxis": x,
        "yaxis": y,
        **keys,
    }
