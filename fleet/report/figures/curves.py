"""Learning curves: one figure for each family of metrics (loss and test_loss belong together)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from fleet.journal.events import Epoch
from fleet.report.figures.layout import Figure, FigureTrace, axis, escaped, layout, whole_ticks
from fleet.report.history import RunHistory
from fleet.report.wording import metric_title

_PREFIXES = ("test_", "train_", "held_out_", "val_", "validation_")


def curve_figures(history: RunHistory, colours: Mapping[str, str]) -> dict[str, Figure]:
    """Figures by family, loss and accuracy first; x is the number of finished epochs."""
    epochs = {job: history.epochs_of(job) for job in history.jobs}
    families: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(name for rows in epochs.values() for row in rows for name in row.metrics):
        families[family(name)].append(name)
    order = sorted(families, key=lambda key: (key != "loss", key != "accuracy"))
    return {key: _figure(key, families[key], epochs, colours) for key in order}


def family(metric: str) -> str:
    """loss for test_loss, accuracy for train_accuracy."""
    return next((metric[len(prefix) :] for prefix in _PREFIXES if metric.startswith(prefix)), metric)


def _figure(
    key: str, metrics: Sequence[str], epochs: Mapping[str, Sequence[Epoch]], colours: Mapping[str, str]
) -> Figure:
    traces = [
        _trace(job, name, rows, colours[job], dotted=name != key and key in metrics)
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


def _trace(job: str, name: str, rows: Sequence[Epoch], colour: str, dotted: bool) -> FigureTrace:
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
