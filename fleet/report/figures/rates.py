"""Measured against fitted rates: points and curves, one colour a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleet.report.figures.layout import Figure, FigureTrace, axis, escaped, layout, whole_ticks
from fleet.report.rates import JobRates


def rates_figure(rows: Sequence[JobRates], colours: Mapping[str, str]) -> Figure | None:
    """Curves are fitted rates, circles were profiled, crosses trained; None if no rate is known."""
    if not rows:
        return None
    traces = [trace for row in rows for trace in _network(row, colours[row.job])]
    counts = [count for row in rows for rates in (row.profiled, row.trained, row.fitted) for count in rates]
    x = axis(
        "Devices", range=[0.5, max(counts, default=1) + 0.5], zeroline=False, **whole_ticks(1, max(counts, default=1))
    )
    y = axis("Samples per second", rangemode="tozero", nticks=7)
    return {"data": traces, "layout": layout(360, x, y, hovermode="closest")}


def _network(row: JobRates, colour: str) -> list[FigureTrace]:
    points = {"symbol": "circle", "size": 8, "color": colour, "line": {"color": "@surface", "width": 1}}
    crosses = {"symbol": "x-thin", "size": 8, "color": colour, "line": {"color": colour, "width": 2}}
    return [
        _trace(row.job, "fitted", row.fitted, {"mode": "lines", "line": {"color": colour, "width": 1.8}}),
        _trace(row.job, "profiled", row.profiled, {"mode": "markers", "marker": points}),
        _trace(row.job, "while training", row.trained, {"mode": "markers", "marker": crosses}),
    ]


def _trace(job: str, kind: str, rates: Mapping[int, float], style: FigureTrace) -> FigureTrace:
    return {
        "type": "scatter",
        "name": f"{escaped(job)}, {kind}",
        "meta": {"network": job},
        "x": list(rates),
        "y": list(rates.values()),
        "hovertemplate": f"<b>{escaped(job)}</b>, {kind}<br>%{{x}} devices: %{{y:,.1f}} samples/s<extra></extra>",
        **style,
    }
