"""The timeline: which network every device trained, when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from fleet.report.colours import ink_on
from fleet.report.figures.layout import Figure, FigureTrace, axis, escaped, layout, time_unit
from fleet.report.flotillas import FlotillaRow
from fleet.report.history import DeviceSpan, RunHistory
from fleet.report.wording import duration, rate

_ROW, _LEAST, _MOST = 30, 150, 1200
_HATCH = {"fgcolor": "@surface", "size": 7, "solidity": 0.35}


def timeline(history: RunHistory, rows: Sequence[FlotillaRow], colours: Mapping[str, str]) -> Figure | None:
    """Horizontal bars, one row a device; None if no device ever had a job."""
    if not history.spans and not history.measurements:
        return None
    groups: dict[str, list[DeviceSpan]] = defaultdict(list)
    for span in history.spans:
        groups[span.job].append(span)
    unit, word = time_unit(history.wall)
    traces = [_network(job, groups[job], colours[job], unit) for job in history.jobs if job in groups]
    traces += [_profiling(history, unit)] if history.measurements else []
    devices = history.devices
    height = min(_MOST, max(_LEAST, (_ROW if len(devices) <= 16 else 16) * len(devices) + 90))
    y = axis("Device", range=[max(devices, default=0) + 0.5, min(devices, default=0) - 0.5], showgrid=False)
    y |= {"zeroline": False, **_ticks(devices)}
    x = axis(f"{word} since the start", range=[0, max(history.wall, 1e-9) / unit], zeroline=False)
    bars = {"barmode": "overlay", "bargap": 0, "uniformtext": {"mode": "hide", "minsize": 9}}
    return {"data": traces, "layout": layout(height, x, y, hovermode="closest", **bars, **_marks(history, rows, unit))}


def _network(job: str, spans: Sequence[DeviceSpan], colour: str, unit: float) -> FigureTrace:
    return {
        "type": "bar",
        "orientation": "h",
        "name": escaped(job),
        "meta": {"network": job},
        "base": [span.start / unit for span in spans],
        "x": [span.seconds / unit for span in spans],
        "y": [span.device for span in spans],
        "width": 0.82,
        "marker": {
            "color": colour,
            "line": {"color": "@surface", "width": 0.6},
            "pattern": {
                "shape": ["/" if s.outcome == "failed" else "" for s in spans],
                "fillmode": "overlay",
                **_HATCH,
            },
        },
        "text": [escaped(job)] * len(spans),
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": ink_on(colour), "size": 11},
        "constraintext": "both",
        "hovertext": [_hover(span) for span in spans],
        "hoverinfo": "text",
    }


def _profiling(history: RunHistory, unit: float) -> FigureTrace:
    bars = [(m, device) for m in history.measurements for device in m.devices]
    return {
        "type": "bar",
        "orientation": "h",
        "name": "profiling",
        "base": [(m.t - m.seconds) / unit for m, _ in bars],
        "x": [m.seconds / unit for m, _ in bars],
        "y": [device for _, device in bars],
        "width": 0.5,
        "marker": {"color": "@muted", "line": {"width": 0.6, "color": "@surface"}},
        "opacity": 0.55,
        "hovertext": [
            f"profiling <b>{escaped(m.job)}</b><br>{m.count} devices, {rate(m.rate)} samples/s" for m, _ in bars
        ],
        "hoverinfo": "text",
    }


def _hover(span: DeviceSpan) -> str:
    first, last = (span.epochs[0], span.epochs[-1]) if span.epochs else (0, 0)
    lines = (
        f"<b>{escaped(span.job)}</b> on device {span.device}",
        f"flotilla {span.round}",
        (f"epochs {first} to {last}" if first != last else f"epoch {first}") if span.epochs else "no epoch finished",
        f"{duration(span.start)} to {duration(span.end)}, for {duration(span.seconds)}",
        f"then {'the session ended' if span.outcome == 'cut' else span.outcome}",
    )
    return "<br>".join(lines)


def _ticks(devices: Sequence[int]) -> dict[str, Any]:
    step = max(1, -(-len(devices) // 24))
    return {"tickvals": list(devices[::step]), "ticktext": [str(device) for device in devices[::step]]}


def _marks(history: RunHistory, rows: Sequence[FlotillaRow], unit: float) -> dict[str, Any]:
    """Lines where flotillas begin, dashed ones where a session went on, thin ones between nodes."""
    shapes = [_line(row.start / unit, dash="solid", colour="@muted") for row in rows]
    shapes += [_line(session.start / unit, dash="dash", colour="@ink") for session in history.sessions[1:]]
    if history.cluster is not None:
        shapes += [_node_line(start - 0.5) for start in history.cluster.node_starts[1:]]
    step = max(1, -(-len(rows) // 16))
    notes = [_note(row.start / unit, row.label) for row in rows[::step]]
    margin = {"l": 8, "r": 12, "t": 26, "b": 8, "pad": 0}
    return {"shapes": shapes, "annotations": notes, "margin": margin}


def _line(x: float, dash: str, colour: str) -> dict[str, Any]:
    line = {"color": colour, "width": 1, "dash": dash}
    return {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1.0, "line": line}


def _node_line(y: float) -> dict[str, Any]:
    line = {"color": "@muted", "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": line}


def _note(x: float, label: str) -> dict[str, Any]:
    return {
        "x": x,
        "y": 1,
        "yref": "paper",
        "text": label.split(" ")[0],
        "showarrow": False,
        "xanchor": "left",
        "yanchor": "bottom",
        "font": {"size": 12, "color": "@muted"},
    }
