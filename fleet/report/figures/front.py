"""The Pareto front of a search: trials by its first metric and each further one."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.report.figures.layout import Figure, FigureTrace, axis, escaped, layout
from fleet.report.wording import metric, metric_title
from fleet.search.journalled import Searched, TrialRow


def front_figures(searched: Searched) -> dict[str, Figure]:
    """One for each further metric; none without a value."""
    rows = [row for row in searched.rows if row.value is not None and row.further]
    if not rows:
        return {}
    return {f"search-front-{place}": _figure(searched, rows, place) for place in range(len(searched.told.further))}


def _figure(searched: Searched, rows: Sequence[TrialRow], place: int) -> Figure:
    told = searched.told
    best = {row.told.trial for row in searched.front}
    there = [row for row in rows if row.told.trial in best]
    others = [row for row in rows if row.told.trial not in best]
    traces = [
        _points(searched, others, place, "others", {"size": 6, "color": "@idle"}),
        _points(searched, there, place, "on the front", {"size": 9, "color": "@accent"}),
    ]
    if len(told.further) == 1:
        traces.insert(0, _line(there, told.maximise))
    return {
        "data": [trace for trace in traces if trace["x"]],
        "layout": layout(320, _axis(told.metric), _axis(told.further[place][0]), hovermode="closest"),
    }


def _axis(name: str) -> dict[str, object]:
    form = {"tickformat": ",.0%"} if "accuracy" in name else {}
    return axis(metric_title(name), nticks=6, zeroline=False, **form)


def _line(rows: Sequence[TrialRow], maximise: bool) -> FigureTrace:
    """The border of what nobody has reached."""
    ordered = sorted(rows, key=lambda row: (row.value or 0.0, row.told.trial))
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "front",
        "x": [row.value for row in ordered],
        "y": [row.further[0] for row in ordered],
        "line": {"shape": "vh" if maximise else "hv", "color": "@accent", "width": 1},
        "hoverinfo": "skip",
    }


def _points(
    searched: Searched, rows: Sequence[TrialRow], place: int, name: str, marker: dict[str, object]
) -> FigureTrace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "meta": {"networks": [row.told.job for row in rows]},
        "x": [row.value for row in rows],
        "y": [row.further[place] for row in rows],
        "marker": marker,
        "hovertext": [_hover(searched, row) for row in rows],
        "hoverinfo": "text",
    }


def _hover(searched: Searched, row: TrialRow) -> str:
    names = (searched.told.metric, *(name for name, _ in searched.told.further))
    values = zip(names, (row.value, *row.further))
    told = (f"{escaped(name)} {metric(name, value)}" for name, value in values)
    return "<br>".join((f"<b>{escaped(row.told.job)}</b> after {row.epochs} epochs", *told))
