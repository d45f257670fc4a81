"""Figures of a run as plain plotly dictionaries: timeline, waiting, rates, learning curves, the data path.

Colours that depend on light and dark are written as tokens (@ink, @muted, @rule, @surface, @idle, @data, @peers,
@reforming); the page puts the reader's own in. A trace that belongs to a network carries its name in
`meta["network"]`. Every text is escaped: plotly reads texts as HTML.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from fleet.journal.events import Epoch, Preprocessors
from fleet.report.analysis import DeviceTime, FlotillaRow, JobRates
from fleet.report.rendering import Figure, FigureTrace, axis, escaped, ink_on, layout, time_unit, whole_ticks
from fleet.report.run_history import DeviceSpan, RunHistory
from fleet.report.wording import duration, metric_title, rate

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
    traces = [_bars_of(job, groups[job], colours[job], unit) for job in history.jobs if job in groups]
    traces += [_profiling(history, unit)] if history.measurements else []
    devices = history.devices
    height = min(_MOST, max(_LEAST, (_ROW if len(devices) <= 16 else 16) * len(devices) + 90))
    y = axis("Device", range=[max(devices, default=0) + 0.5, min(devices, default=0) - 0.5], showgrid=False)
    y |= {"zeroline": False, **_ticks(devices)}
    x = axis(f"{word} since the start", range=[0, max(history.wall, 1e-9) / unit], zeroline=False)
    bars = {"barmode": "overlay", "bargap": 0, "uniformtext": {"mode": "hide", "minsize": 9}}
    return {"data": traces, "layout": layout(height, x, y, hovermode="closest", **bars, **_marks(history, rows, unit))}


def _bars_of(job: str, spans: Sequence[DeviceSpan], colour: str, unit: float) -> FigureTrace:
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
        "hovertext": [_span_text(span) for span in spans],
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


def _span_text(span: DeviceSpan) -> str:
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


REASONS = {
    "idle": "idle, without a job",
    "data": "for samples or the pace",
    "peers": "for its group",
    "reforming": "re-forming groups",
}


def waiting_figure(times: Sequence[DeviceTime]) -> Figure | None:
    """One stacked bar a device; None without devices."""
    if not times:
        return None
    devices = [time.device for time in times]
    unit, word = time_unit(max(time.reserved for time in times))
    traces = [
        {
            "type": "bar",
            "name": title,
            "x": devices,
            "y": [getattr(time, reason) / unit for time in times],
            "text": [duration(getattr(time, reason)) for time in times],
            "textposition": "none",
            "marker": {"color": f"@{reason}"},
            "hovertemplate": f"device %{{x}}<br>{title}: %{{text}}<extra></extra>",
        }
        for reason, title in REASONS.items()
    ]
    edges = [min(devices) - 0.5, max(devices) + 0.5]
    x = axis("Device", range=edges, showgrid=False, zeroline=False, **whole_ticks(devices[0], devices[-1], most=20))
    y = axis(f"{word} waited", rangemode="tozero", nticks=6)
    return {"data": traces, "layout": layout(300, x, y, barmode="stack", bargap=0.25 if len(devices) > 3 else 0.7)}


def rates_figure(rows: Sequence[JobRates], colours: Mapping[str, str]) -> Figure | None:
    """Curves are fitted rates, circles were profiled, crosses trained; None if no rate is known."""
    if not rows:
        return None
    traces = [trace for row in rows for trace in _rate_traces(row, colours[row.job])]
    counts = [count for row in rows for rates in (row.profiled, row.trained, row.fitted) for count in rates]
    x = axis(
        "Devices", range=[0.5, max(counts, default=1) + 0.5], zeroline=False, **whole_ticks(1, max(counts, default=1))
    )
    y = axis("Samples per second", rangemode="tozero", nticks=7)
    return {"data": traces, "layout": layout(360, x, y, hovermode="closest")}


def _rate_traces(row: JobRates, colour: str) -> list[FigureTrace]:
    points = {"symbol": "circle", "size": 8, "color": colour, "line": {"color": "@surface", "width": 1}}
    crosses = {"symbol": "x-thin", "size": 8, "color": colour, "line": {"color": colour, "width": 2}}
    return [
        _rate_trace(row.job, "fitted", row.fitted, {"mode": "lines", "line": {"color": colour, "width": 1.8}}),
        _rate_trace(row.job, "profiled", row.profiled, {"mode": "markers", "marker": points}),
        _rate_trace(row.job, "while training", row.trained, {"mode": "markers", "marker": crosses}),
    ]


def _rate_trace(job: str, kind: str, rates: Mapping[int, float], style: FigureTrace) -> FigureTrace:
    return {
        "type": "scatter",
        "name": f"{escaped(job)}, {kind}",
        "meta": {"network": job},
        "x": list(rates),
        "y": list(rates.values()),
        "hovertemplate": f"<b>{escaped(job)}</b>, {kind}<br>%{{x}} devices: %{{y:,.1f}} samples/s<extra></extra>",
        **style,
    }


_PREFIXES = ("test_", "train_", "held_out_", "val_", "validation_")


def curve_figures(history: RunHistory, colours: Mapping[str, str]) -> dict[str, Figure]:
    """Figures by family, loss and accuracy first; x is the number of finished epochs."""
    epochs = {job: history.epochs_of(job) for job in history.jobs}
    families: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(name for rows in epochs.values() for row in rows for name in row.metrics):
        families[family(name)].append(name)
    order = sorted(families, key=lambda key: (key != "loss", key != "accuracy"))
    return {key: _curve_figure(key, families[key], epochs, colours) for key in order}


def family(metric: str) -> str:
    """loss for test_loss, accuracy for train_accuracy."""
    return next((metric[len(prefix) :] for prefix in _PREFIXES if metric.startswith(prefix)), metric)


def _curve_figure(
    key: str, metrics: Sequence[str], epochs: Mapping[str, Sequence[Epoch]], colours: Mapping[str, str]
) -> Figure:
    traces = [
        _curve(job, name, rows, colours[job], dotted=name != key and key in metrics)
        for job, rows in epochs.items()
        for name in metrics
        if any(name in row.metrics for row in rows)
    ]
    longest = max((len(rows) for rows in epochs.values()), default=1)
    x = axis("Finished epochs", range=[0.7, longest + 0.3], zeroline=False, **whole_ticks(1, longest))
    y = axis(metric_title(key), nticks=7, zeroline=False)
    if "accuracy" in key:
        y["tickformat"] = ",.0%"
    return {"data": traces, "layout": layout(340, x, y, hovermode="closest")}


def _curve(job: str, name: str, rows: Sequence[Epoch], colour: str, dotted: bool) -> FigureTrace:
    number = "%{y:.2%}" if "accuracy" in name else "%{y:.4g}"
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": f"{escaped(job)}, {escaped(name)}",
        "meta": {"network": job},
        "x": list(range(1, len(rows) + 1)),
        "y": [row.metrics.get(name) for row in rows],
        "line": {"color": colour, "width": 1.6, "dash": "dot" if dotted else "solid"},
        "marker": {"size": 4, "color": colour},
        "text": [f"{row.t:.1f} s, {len(row.devices)} devices, flotilla {row.round}" for row in rows],
        "hovertemplate": f"<b>{escaped(job)}</b>, epoch %{{x}}<br>{escaped(name)} {number}<br>%{{text}}<extra></extra>",
    }


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
