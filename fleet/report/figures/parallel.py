"""Parallel coordinates: a line for each trial, through its values and to its result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.report.figures.layout import Figure, FigureTrace, escaped, layout
from fleet.report.told_values import shown_value
from fleet.report.wording import metric, metric_title
from fleet.search.journalled import Searched, TrialRow
from fleet.search.space import Parameter, parameters

MOST_AXES = 12
_BELOW = -0.14  # where lines go of trials that lack a parameter, or have no value
_SCALE = ("#440154", "#414487", "#2a788e", "#22a884", "#7ad151", "#d8c51f")  # viridis, its last a little darker
_FAILED = "#d2605a"


@dataclass(frozen=True)
class _Axis:
    """One upright line: where values stand on it, 0 to 1, and what is written beside it."""

    title: str
    places: Mapping[int, float]  # trial -> place; those that are missing have none
    ticks: Sequence[tuple[float, str]]
    below: str


def parallel_figure(searched: Searched, shares: Mapping[str, float]) -> Figure | None:
    """Draw trials through their values, of many parameters those that matter most; None if no trial has begun.

    Args:
        shares: parameter -> how much it matters, as far as that is known.
    """
    rows = searched.rows
    if not rows:
        return None
    known = {parameter.name: parameter for parameter, _ in parameters(searched.section.over)}
    names = [name for name in searched.columns if any(name in row.values for row in rows)]
    if len(names) > MOST_AXES:
        most = sorted(names, key=lambda name: -shares.get(name, 0.0))[:MOST_AXES]
        names = [name for name in names if name in most]
    axes = [_axis(known[name], rows) for name in names] + [_results(searched)]
    order = _ranked(searched)
    traces = [_line(row, axes, order, searched.told.metric) for row in _worst_first(rows, order)]
    return {"data": traces, "layout": _layout(axes, [row.told.trial for row in rows])}


def _axis(parameter: Parameter, rows: Sequence[TrialRow]) -> _Axis:
    values = {row.told.trial: row.values[parameter.name] for row in rows if parameter.name in row.values}
    title = parameter.name.rpartition(".")[2]
    numbers = all(type(value) in (int, float) for value in values.values())
    if parameter.kind == "index" or not numbers:
        kinds = _kinds(values.values())
        at = {text: (place + 0.5) / len(kinds) for place, text in enumerate(kinds)}
        places = {trial: at[shown_value(value)] for trial, value in values.items()}
        return _Axis(title, places, [(at[text], text) for text in _thinned(kinds)], "none")
    low, high = min(parameter.low, *values.values()), max(parameter.high, *values.values())
    logarithmic = parameter.kind == "log" and low > 0
    places = {trial: _part(value, low, high, logarithmic) for trial, value in values.items()}
    ticks = [
        (_part(at, low, high, logarithmic), shown_value(at)) for at in _marks(low, high, parameter.kind, logarithmic)
    ]
    return _Axis(title, places, ticks, "none")


def _marks(low: float, high: float, kind: str, logarithmic: bool) -> list[float]:
    """Both ends and some values between: powers of ten, or the middle."""
    if low == high:
        return [low]
    if logarithmic:
        between = [10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
        between = between[:: -(-len(between) // 6) or 1]
    else:
        middle = (low + high) / 2
        between = [] if kind == "whole" and high - low < 2 else [round(middle) if kind == "whole" else middle]
    return [low, *(at for at in between if 0.07 < _part(at, low, high, logarithmic) < 0.93), high]


def _results(searched: Searched) -> _Axis:
    """The last axis; a value much worse than the others stands at its foot."""
    sign, name = (1.0 if searched.told.maximise else -1.0), searched.told.metric
    values = {row.told.trial: row.value for row in searched.rows if row.value is not None}
    if not values:
        return _Axis(metric_title(name), {}, [], "no value")
    ordered = sorted(values.values(), key=lambda value: -sign * value)
    best, middle, worst = ordered[0], ordered[len(ordered) // 2], ordered[-1]
    foot = middle - sign * 3 * abs(best - middle)
    is_cut = best != middle and sign * worst < sign * foot
    foot = foot if is_cut else worst
    places = {trial: max(0.0, _part(sign * value, sign * foot, sign * best, False)) for trial, value in values.items()}
    half = (foot + best) / 2
    ticks = [(0.0, metric(name, foot) + (" or worse" if is_cut else "")), (0.5, metric(name, half))]
    ticks = [(1.0, metric(name, best)), *(ticks if best != foot else [])]
    return _Axis(metric_title(name), places, ticks, "no value")


def _line(row: TrialRow, axes: Sequence[_Axis], order: Mapping[int, float], name: str) -> FigureTrace:
    rank = order.get(row.told.trial)
    failed, least = row.status == "failed", 0.5 if len(order) <= 60 else 0.12
    colour = _FAILED if failed else "@idle" if rank is None else _colour(rank)
    told = ", ".join(f"{escaped(key)} {escaped(shown_value(value))}" for key, value in row.values.items())
    value = "no value" if row.value is None else f"{escaped(metric_title(name).lower())} {metric(name, row.value)}"
    text = f"<b>{escaped(row.told.job)}</b>, {row.status} after {row.epochs} epochs<br>{value}<br>{_wrapped(told)}"
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": escaped(row.told.job),
        "meta": {"network": row.told.job},
        "x": list(range(len(axes))),
        "y": [one.places.get(row.told.trial, _BELOW) for one in axes],
        "line": {
            "color": colour,
            "width": 1.4 if rank is None or rank < 1 else 3,
            "dash": "dot" if failed else "solid",
        },
        "marker": {"size": 4, "color": colour},
        "opacity": least + (1 - least) * (rank or 0.0) ** 2,
        "hovertemplate": text + "<extra></extra>",
    }


def _layout(axes: Sequence[_Axis], trials: Sequence[int]) -> dict[str, Any]:
    last = len(axes) - 1
    sides = ["left" if not x and last else "right" if x == last else "center" for x in range(len(axes))]
    notes = [_note(x, 1.06, f"<b>{escaped(_short(one.title))}</b>", sides[x]) for x, one in enumerate(axes)]
    for x, one in enumerate(axes):
        notes += [_note(x, place, escaped(_short(text)), "beside", 11) for place, text in one.ticks]
        lacks = any(trial not in one.places for trial in trials)
        notes += [_note(x, _BELOW, one.below, "beside", 11)] if lacks else []
    lines = [
        {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "line": {"color": "@muted", "width": 1}}
        for x in range(len(axes))
    ]
    hidden = {"visible": False, "fixedrange": True}
    across = {**hidden, "range": [-0.03 * last, last * 1.09]}
    upright = {**hidden, "range": [_BELOW - 0.06, 1.12]}
    return layout(400, across, upright, hovermode="closest", shapes=lines, annotations=notes)


def _note(x: float, y: float, text: str, side: str, size: int = 12) -> dict[str, Any]:
    """A text at a place: beside an axis, or over it, where those of the first and the last turn inwards."""
    anchor = {"center": "center", "right": "right"}.get(side, "left")
    shift = {"beside": 6, "left": -4, "right": 40}.get(side, 0)
    return {
        "x": x, "y": y, "text": text, "showarrow": False, "xanchor": anchor, "yanchor": "middle", "xshift": shift,
        "font": {"size": size, "color": "@ink" if size > 11 else "@muted"},
    }  # fmt: skip


def _ranked(searched: Searched) -> dict[int, float]:
    """Trial -> its rank, 0 the worst to 1 the best, of those that have a value."""
    sign = 1.0 if searched.told.maximise else -1.0
    having = [(sign * row.value, -row.told.trial) for row in searched.rows if row.value is not None]
    most = max(1, len(having) - 1)
    return {-trial: (place / most if len(having) > 1 else 1.0) for place, (_, trial) in enumerate(sorted(having))}


def _worst_first(rows: Sequence[TrialRow], order: Mapping[int, float]) -> list[TrialRow]:
    """So that the best lie on top."""
    return sorted(rows, key=lambda row: order.get(row.told.trial, -1.0))


def _colour(rank: float) -> str:
    return _SCALE[min(len(_SCALE) - 1, int(rank * len(_SCALE)))]


def _part(value: float, low: float, high: float, logarithmic: bool) -> float:
    if low == high:
        return 0.5
    if logarithmic:
        value, low, high = math.log(value), math.log(low), math.log(high)
    return (value - low) / (high - low)


def _kinds(values: Any) -> list[str]:
    """Values that have no order but that of numbers, as texts."""
    found = {shown_value(value): value for value in values}
    if all(type(value) in (int, float) for value in found.values()):
        return sorted(found, key=lambda text: found[text])
    return sorted(found)


def _thinned(texts: Sequence[str], most: int = 8) -> Sequence[str]:
    return texts[:: -(-len(texts) // most)]


def _short(text: str, most: int = 18) -> str:
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def _wrapped(text: str, width: int = 70) -> str:
    """Lines no longer than that, broken at commas."""
    lines, line = [], ""
    for part in text.split(", "):
        if line and len(line) + len(part) > width:
            lines.append(line)
            line = part
        else:
            line = f"{line}, {part}" if line else part
    return "<br>".join([*lines, line])
