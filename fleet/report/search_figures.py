"""Figures of a search as plain plotly dictionaries: what matters, parallel coordinates, the best so far, the front,
rungs, populations.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from fleet.report.rendering import Figure, FigureTrace, axis, escaped, layout, time_unit, whole_ticks
from fleet.report.run_history import RunHistory
from fleet.report.wording import metric, metric_title, plural, shown_value
from fleet.search import Decision
from fleet.search.journalled import Result, Searched, TrialRow
from fleet.search.optuna_samplers import distribution_of, quiet
from fleet.search.space import Parameter, answers_of, parameters, value_row

LEAST = 5
"""Trials with a value, without which nothing can be said."""


@dataclass(frozen=True)
class Importance:
    """What is known of it.

    Attributes:
        shares: parameter -> its share, all together 1, the largest first; empty: nothing can be said.
        told: on what they rest, or why there are none, in a sentence.
    """

    shares: Mapping[str, float] = field(default_factory=dict)
    told: str = ""


def importance_of(searched: Searched) -> Importance:
    """Shares by PED-ANOVA (Watanabe et al., IJCAI'23): how much a parameter has to do with being among the best tenth.

    Trials are compared after the same number of epochs. It draws nothing, so it has no seed.
    """
    epoch, values = comparable(searched)
    if len(values) < LEAST:
        return Importance(told=f"{plural(len(values), 'trial')} with a value are too few to say what matters.")
    if len(set(values.values())) == 1:
        return Importance(told="All trials have the same value, so that nothing matters more than anything else.")
    try:
        import optuna  # noqa: F401 - whether it is there
    except ImportError:
        return Importance(told="What matters most is told where Optuna is: pip install 'fleet-hpc[search]'.")
    after, metric = plural(epoch, "epoch"), metric_title(searched.told.metric).lower()
    left = len(searched.rows) - len(values)
    out = f"; {left} without one are left out" if left else ""
    try:
        shares = _shares(searched, values)
    except ValueError:  # an own sampler suggests what its distribution does not have
        return Importance(told="Some values are none of those in `over`, so that nothing can be said of what matters.")
    return Importance(
        shares,
        f"How much a parameter has to do with being among the best, by the {metric} after {after} of the {len(values)} "
        f"trials that have one{out} (PED-ANOVA, of Optuna).",
    )


def comparable(searched: Searched) -> tuple[int, dict[int, float]]:
    """The most epochs after which nine in ten of the trials that have values have one, and those values by trial.

    Only those that did well train on: to compare these alone would tell little of what makes a trial do well.
    """
    curves = {row.told.trial: row.told.curve(searched.told.metric) for row in searched.rows}
    having = Counter(epoch for curve in curves.values() for epoch in curve)
    if not having:
        return 0, {}
    enough = 0.9 * sum(bool(curve) for curve in curves.values())
    most = max(having, key=lambda epoch: (having[epoch], -epoch))
    epoch = max((epoch for epoch, trials in having.items() if trials >= enough), default=most)
    return epoch, {trial: curve[epoch] for trial, curve in curves.items() if epoch in curve}


def _shares(searched: Searched, values: Mapping[int, float]) -> dict[str, float]:
    import optuna

    with quiet():
        study = optuna.create_study(direction="maximize" if searched.told.maximise else "minimize")
        for trial, value in values.items():
            answers = answers_of(searched.section.over, searched.told.trials[trial].values)
            study.add_trial(_frozen(answers, value))
        found = optuna.importance.get_param_importances(study, evaluator=_evaluator(len(values)))
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _evaluator(trials: int) -> Any:
    """The best tenth, or more where a tenth would be fewer than five trials."""
    from optuna.importance import PedAnovaImportanceEvaluator

    share, made = min(0.5, max(0.1, LEAST / trials)), cast(Any, PedAnovaImportanceEvaluator)
    try:
        return made(target_quantile=share)
    except TypeError:  # older versions of Optuna call it otherwise
        return made(baseline_quantile=share)


def _frozen(answers: Mapping[Parameter, Any], value: float) -> Any:
    from optuna.trial import create_trial

    return create_trial(
        value=value,
        params={parameter.name: chosen for parameter, chosen in answers.items()},
        distributions={parameter.name: distribution_of(parameter) for parameter in answers},
    )


MOST_BARS = 20


def importance_figure(importance: Importance) -> Figure | None:
    """The parameters that matter most, the first on top; None where nothing can be said."""
    shown = list(importance.shares.items())[:MOST_BARS]
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


MOST_AXES = 12
_BELOW = -0.14  # where lines go of trials that lack a parameter, or have no value
_RANK_COLOURS = ("#440154", "#414487", "#2a788e", "#22a884", "#7ad151", "#d8c51f")  # viridis, its last a little darker
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
    axes = [_parameter_axis(known[name], rows) for name in names] + [_results(searched)]
    order = _ranked(searched)
    traces = [_trial_line(row, axes, order, searched.told.metric) for row in _worst_first(rows, order)]
    return {"data": traces, "layout": _layout(axes, [row.told.trial for row in rows])}


def _parameter_axis(parameter: Parameter, rows: Sequence[TrialRow]) -> _Axis:
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
        (_part(at, low, high, logarithmic), shown_value(at))
        for at in _tick_values(low, high, parameter.kind, logarithmic)
    ]
    return _Axis(title, places, ticks, "none")


def _tick_values(low: float, high: float, kind: str, logarithmic: bool) -> list[float]:
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


def _trial_line(row: TrialRow, axes: Sequence[_Axis], order: Mapping[int, float], name: str) -> FigureTrace:
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
        "x": x,
        "y": y,
        "text": text,
        "showarrow": False,
        "xanchor": anchor,
        "yanchor": "middle",
        "xshift": shift,
        "font": {"size": size, "color": "@ink" if size > 11 else "@muted"},
    }


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
    return _RANK_COLOURS[min(len(_RANK_COLOURS) - 1, int(rank * len(_RANK_COLOURS)))]


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


def best_figures(searched: Searched, history: RunHistory) -> dict[str, Figure]:
    """One over seconds of the run, one over device time; none without a result."""
    results = [result for result in searched.told.results if result.value is not None]
    if not results:
        return {}
    unit, word = time_unit(history.wall)
    held = [held_until(history, result.time) for result in results]
    few = max(held) < 3600
    spent = [seconds if few else seconds / 3600 for seconds in held]
    over = {
        "search-time": ([result.time / unit for result in results], f"{word} since the start"),
        "search-devices": (spent, "Device-seconds" if few else "Device-hours"),
    }
    return {key: _best_figure(searched, results, x, title) for key, (x, title) in over.items()}


def held_until(history: RunHistory, time: float) -> float:
    """Device-seconds that jobs have held until a second of the run."""
    return sum(max(0.0, min(span.end, time) - span.start) for span in history.spans)


def _best_figure(searched: Searched, results: Sequence[Result], at: Sequence[float], title: str) -> Figure:
    told, better = searched.told, max if searched.told.maximise else min
    values = [result.value for result in results if result.value is not None]
    best, steps = values[0], []
    for place, value in zip(at, values):
        best = better(best, value)
        steps.append((place, best))
    y = axis(metric_title(told.metric), nticks=6, zeroline=False, range=_range_of_most(values, better))
    if "accuracy" in told.metric:
        y["tickformat"] = ",.0%"
    x = axis(title, rangemode="tozero", zeroline=False, nticks=6, range=[0, 1.03 * max(at)] if max(at) > 0 else None)
    return {
        "data": [_result_points(searched, results, at), _best_line(steps)],
        "layout": layout(280, x, y, hovermode="closest"),
    }


def _range_of_most(values: Sequence[float], better: Callable[..., float]) -> list[float]:
    """All values, but for those that are much worse than most: they stand outside."""
    ordered = sorted(values, reverse=better is max)  # the best first
    best, middle, worst = ordered[0], ordered[len(ordered) // 2], ordered[-1]
    foot = middle + 4 * (middle - best)
    foot = foot if best != middle and abs(worst - best) > abs(foot - best) else worst
    margin = 0.06 * (abs(best - foot) or abs(best) or 1.0)
    return [min(best, foot) - margin, max(best, foot) + margin]


def _result_points(searched: Searched, results: Sequence[Result], at: Sequence[float]) -> FigureTrace:
    jobs = [searched.told.trials[result.trial].job for result in results]
    name = searched.told.metric
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "results",
        "meta": {"networks": jobs},
        "x": list(at),
        "y": [result.value for result in results],
        "marker": {"size": 6, "color": "@idle"},
        "hovertext": [
            f"<b>{escaped(job)}</b> after {result.epoch} epochs<br>{escaped(name)} {metric(name, result.value)}"
            for job, result in zip(jobs, results)
        ],
        "hoverinfo": "text",
    }


def _best_line(steps: Sequence[tuple[float, float]]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "best so far",
        "x": [x for x, _ in steps],
        "y": [best for _, best in steps],
        "line": {"shape": "hv", "color": "@accent", "width": 2},
        "hoverinfo": "skip",
    }


def front_figures(searched: Searched) -> dict[str, Figure]:
    """One for each further metric; none without a value."""
    rows = [row for row in searched.rows if row.value is not None and row.further]
    if not rows:
        return {}
    return {
        f"search-front-{place}": _front_figure(searched, rows, place) for place in range(len(searched.told.further))
    }


def _front_figure(searched: Searched, rows: Sequence[TrialRow], place: int) -> Figure:
    told = searched.told
    best = {row.told.trial for row in searched.front}
    there = [row for row in rows if row.told.trial in best]
    others = [row for row in rows if row.told.trial not in best]
    traces = [
        _front_points(searched, others, place, "others", {"size": 6, "color": "@idle"}),
        _front_points(searched, there, place, "on the front", {"size": 9, "color": "@accent"}),
    ]
    if len(told.further) == 1:
        traces.insert(0, _front_line(there, told.maximise))
    return {
        "data": [trace for trace in traces if trace["x"]],
        "layout": layout(320, _metric_axis(told.metric), _metric_axis(told.further[place][0]), hovermode="closest"),
    }


def _metric_axis(name: str) -> dict[str, object]:
    form = {"tickformat": ",.0%"} if "accuracy" in name else {}
    return axis(metric_title(name), nticks=6, zeroline=False, **form)


def _front_line(rows: Sequence[TrialRow], maximise: bool) -> FigureTrace:
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


def _front_points(
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
        "hovertext": [_front_text(searched, row) for row in rows],
        "hoverinfo": "text",
    }


def _front_text(searched: Searched, row: TrialRow) -> str:
    names = (searched.told.metric, *(name for name, _ in searched.told.further))
    values = zip(names, (row.value, *row.further))
    told = (f"{escaped(name)} {metric(name, value)}" for name, value in values)
    return "<br>".join((f"<b>{escaped(row.told.job)}</b> after {row.epochs} epochs", *told))


ENDS = {
    "pause": ("paused, and goes on no more so far", "square-open", "@muted"),
    "promoted": ("promoted", "triangle-right", "@accent"),
    "stop": ("stopped", "line-ns-open", "@ink"),
    "done": ("all epochs", "circle", "@good"),
    "fail": ("failed", "x-thin-open", "@bad"),
}
"""What a result means for its trial -> what people call it, its mark, its colour."""
_RUNG_COLOURS = ("#c5d3e6", "#9db7da", "#759bcd", "#4c7fbf", "#36609a", "#254572")
_HIGHEST, _LOWEST = 900, 170


@dataclass(frozen=True)
class _Bar:
    """A segment; `kind`: what came of it, a key of ENDS; empty: that is not known yet, or it went on at once."""

    trial: int
    start: int
    end: int
    begin: float
    finish: float
    kind: str


def rungs_figure(searched: Searched) -> Figure | None:
    """One row for each trial; None if none has begun."""
    bars = _segments_of(searched)
    if not bars:
        return None
    trials = len(searched.rows)
    traces = [_segments(searched, bars), *(t for kind in ENDS if (t := _end_marks(searched, bars, kind)) is not None)]
    height = min(_HIGHEST, max(_LOWEST, 110 + trials * (20 if trials <= 30 else 9)))
    x = axis("Virtual time", range=[0, 1.02 * max(bar.finish for bar in bars)], zeroline=False, rangemode="tozero")
    y = axis("Trial", range=[trials - 0.4, -0.6], showgrid=False, zeroline=False, **whole_ticks(0, trials - 1, 20))
    return {"data": traces, "layout": layout(height, x, y, hovermode="closest", barmode="overlay", bargap=0)}


def kinds_shown(searched: Searched) -> list[tuple[str, str, str]]:
    """Mark, colour and meaning of what was decided at least once; for the legend."""
    there = {bar.kind for bar in _segments_of(searched)}
    signs = {"pause": "\u25a1", "promoted": "\u25b6", "stop": "|", "done": "\u25cf", "fail": "\u00d7"}
    return [(signs[kind], colour[1:], told) for kind, (told, _, colour) in ENDS.items() if kind in there]


def _segments_of(searched: Searched) -> list[_Bar]:
    told, bars = searched.told, list[_Bar]()
    open_at: dict[int, int] = {}  # trial -> its last bar
    for one in told.decisions:
        if one.kind in ("start", "resume"):
            before = open_at.get(one.trial)
            if before is not None and bars[before].kind in ("pause", "stop"):
                bars[before] = _Bar(**{**vars(bars[before]), "kind": "promoted"})
            open_at[one.trial] = len(bars)
            finish = one.time + told.trials[one.trial].cost * (one.end - one.start)
            bars.append(_Bar(one.trial, one.start, one.end, one.time, finish, ""))
        elif one.trial in open_at:
            place = open_at[one.trial]
            pruned = one.kind == "pause" and told.trials[one.trial].pruned
            bars[place] = _Bar(**{**vars(bars[place]), "kind": "stop" if pruned else one.kind})
    return bars


def _segments(searched: Searched, bars: Sequence[_Bar]) -> FigureTrace:
    levels = {end: place for place, end in enumerate(sorted({bar.end for bar in bars}))}
    return {
        "type": "bar",
        "orientation": "h",
        "name": "trained",
        "meta": {"networks": [searched.told.trials[bar.trial].job for bar in bars]},
        "base": [bar.begin for bar in bars],
        "x": [bar.finish - bar.begin for bar in bars],
        "y": [bar.trial for bar in bars],
        "width": 0.74,
        "marker": {
            "color": [_RUNG_COLOURS[_shade(levels[bar.end], len(levels))] for bar in bars],
            "line": {"width": 0},
            "pattern": {
                "shape": ["" if _is_known(searched, bar) else "/" for bar in bars],
                "fgcolor": "@surface",
                "size": 6,
                "solidity": 0.4,
                "fillmode": "overlay",
            },
        },
        "hovertext": [_segment_text(searched, bar) for bar in bars],
        "hoverinfo": "text",
    }


def _end_marks(searched: Searched, bars: Sequence[_Bar], kind: str) -> FigureTrace | None:
    there = [bar for bar in bars if bar.kind == kind]
    if not there:
        return None
    told, symbol, colour = ENDS[kind]
    size = 9 if len(searched.rows) <= 40 else 6
    size *= 2 if kind == "stop" else 1  # its stroke stands out above and below the bar
    return {
        "type": "scatter",
        "mode": "markers",
        "name": told,
        "meta": {"networks": [searched.told.trials[bar.trial].job for bar in there]},
        "x": [bar.finish for bar in there],
        "y": [bar.trial for bar in there],
        "marker": {"symbol": symbol, "size": size, "color": colour, "line": {"width": 2, "color": colour}},
        "hovertext": [_segment_text(searched, bar) for bar in there],
        "hoverinfo": "text",
        "cliponaxis": False,
    }


def _segment_text(searched: Searched, bar: _Bar) -> str:
    trial, name = searched.told.trials[bar.trial], searched.told.metric
    value = trial.results.get(bar.end)
    result = f"{escaped(name)} {metric(name, value)}" if value is not None else "no value"
    came = ENDS[bar.kind][0] if bar.kind else "goes on" if _is_known(searched, bar) else "not known yet"
    return "<br>".join(
        (
            f"<b>{escaped(trial.job)}</b>",
            f"from {bar.start} to {plural(bar.end, 'epoch')}",
            f"virtual time {bar.begin:,.0f} to {bar.finish:,.0f}",
            f"{result if _is_known(searched, bar) else 'no result yet'}: {came}",
        )
    )


def _is_known(searched: Searched, bar: _Bar) -> bool:
    return bool(bar.kind) or bar.end in searched.told.trials[bar.trial].results


def _shade(level: int, levels: int) -> int:
    return 2 if levels == 1 else round(level * (len(_RUNG_COLOURS) - 1) / (levels - 1))


def rung_shades(searched: Searched) -> list[tuple[str, int]]:
    """Colour and epochs of each rung, for the legend; of many the first, some between and the last."""
    ends = sorted({one.end for one in searched.told.decisions if one.kind in ("start", "resume")})
    chosen = ends if len(ends) <= len(_RUNG_COLOURS) else ends[:: -(-len(ends) // len(_RUNG_COLOURS))]
    places: Mapping[int, int] = {end: place for place, end in enumerate(ends)}
    return [(_RUNG_COLOURS[_shade(places[end], len(ends))], end) for end in chosen]


MOST_PARAMETERS = 8
_MOST_HIGH, _LEAST_HIGH = 900, 170
_SPREAD = 20.0  # of positive numbers whose axis is logarithmic


def population_figures(searched: Searched) -> dict[str, Figure]:
    """The lineage, and one for each parameter that is a number; none where nobody went on from anybody."""
    if not copies(searched):
        return {}
    figures = {"search-lineage": _lineage(searched)}
    for number, name in enumerate(searched.columns[:MOST_PARAMETERS]):
        if (figure := _values(searched, name)) is not None:
            figures[f"search-value-{number}"] = figure
    return figures


def copies(searched: Searched) -> list[Decision]:
    """The decisions by which a member went on from another one."""
    return [one for one in searched.told.decisions if one.copy is not None]


def descent(searched: Searched) -> list[tuple[int, int, int]]:
    """The line from which the best came: (member, from epoch, to epoch), the last first."""
    best = searched.best
    if best is None:
        return []
    found: list[tuple[int, int, int]] = []
    member, end = best.told.trial, best.epochs
    while True:
        mine = [one for one in copies(searched) if one.trial == member and one.start < end]
        if not mine:
            return [*found, (member, 0, end)]
        last = max(mine, key=lambda one: one.start)
        assert last.copy is not None
        found.append((member, last.start, end))
        member, end = last.copy.donor, last.copy.epoch


def _lineage(searched: Searched) -> Figure:
    trials = len(searched.rows)
    last = max((row.epochs for row in searched.rows), default=0)
    x = axis("Epochs", range=[0, 1.02 * max(1, last)], zeroline=False, rangemode="tozero")
    y = axis("Member", range=[trials - 0.4, -0.6], showgrid=False, zeroline=False, **whole_ticks(0, trials - 1, 20))
    height = min(_MOST_HIGH, max(_LEAST_HIGH, 110 + trials * (20 if trials <= 30 else 9)))
    traces = [_member_bars(searched), _moves(searched), _winner(searched), _copy_marks(searched)]
    return {"data": traces, "layout": layout(height, x, y, hovermode="closest", bargap=0.6)}


def _member_bars(searched: Searched) -> FigureTrace:
    return {
        "type": "bar",
        "orientation": "h",
        "name": "trained",
        "meta": {"networks": [row.told.job for row in searched.rows]},
        "x": [row.epochs for row in searched.rows],
        "y": [row.told.trial for row in searched.rows],
        "width": 0.3,
        "marker": {"color": "@rule", "line": {"width": 0}},
        "hovertext": [
            f"<b>{escaped(row.told.job)}</b><br>{plural(row.epochs, 'epoch')}, "
            f"{escaped(searched.told.metric)} {metric(searched.told.metric, row.value)}"
            for row in searched.rows
        ],
        "hoverinfo": "text",
    }


def _moves(searched: Searched) -> FigureTrace:
    """From the donor to who goes on from it."""
    x: list[int | None] = []
    y: list[int | None] = []
    for one in copies(searched):
        assert one.copy is not None
        x += [one.copy.epoch, one.start, None]
        y += [one.copy.donor, one.trial, None]
    return _lines("goes on from", x, y, {"color": "@muted", "width": 1})


def _winner(searched: Searched) -> FigureTrace:
    x: list[int | None] = []
    y: list[int | None] = []
    for member, start, end in reversed(descent(searched)):
        x += [start, end]
        y += [member, member]
    return _lines("way to the best", x, y, {"color": "@accent", "width": 3})


def _lines(name: str, x: Sequence[int | None], y: Sequence[int | None], line: dict[str, Any]) -> FigureTrace:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": list(x),
        "y": list(y),
        "line": line,
        "hoverinfo": "skip",
    }


def _copy_marks(searched: Searched) -> FigureTrace:
    told, there = searched.told, copies(searched)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "goes on from another",
        "meta": {"networks": [told.trials[one.trial].job for one in there]},
        "x": [one.start for one in there],
        "y": [one.trial for one in there],
        "marker": {"symbol": "circle", "size": 7, "color": "@accent"},
        "hovertext": [_copy_text(searched, one) for one in there],
        "hoverinfo": "text",
    }


def _copy_text(searched: Searched, one: Decision) -> str:
    told, copy = searched.told, one.copy
    assert copy is not None
    values = value_row(searched.section.over, copy.values).items()
    return "<br>".join(
        (
            f"<b>{escaped(told.trials[one.trial].job)}</b> after {plural(one.start, 'epoch')}",
            f"goes on from {escaped(told.trials[copy.donor].job)}, as it was after {plural(copy.epoch, 'epoch')}",
            *(f"{escaped(name)} {escaped(shown_value(value))}" for name, value in values),
        )
    )


def _values(searched: Searched, name: str) -> Figure | None:
    """A parameter of all members by epoch; None: it is no number."""
    lines = [(row.told.job, list(_steps(searched, row.told.trial, name, row.epochs))) for row in searched.rows]
    numbers = [value for _, steps in lines for _, value in steps]
    if not numbers or not all(type(value) in (int, float) for value in numbers):
        return None
    logarithmic = min(numbers) > 0 and max(numbers) > _SPREAD * min(numbers)
    best = None if searched.best is None else searched.best.told.job
    traces = [_member_line(job, steps, job == best) for job, steps in sorted(lines, key=lambda line: line[0] == best)]
    y = axis(name, zeroline=False, nticks=6, **({"type": "log"} if logarithmic else {}))
    x = axis("Epochs", rangemode="tozero", zeroline=False)
    return {"data": traces, "layout": layout(240, x, y, hovermode="closest")}


def _steps(searched: Searched, trial: int, name: str, end: int) -> Iterator[tuple[int, Any]]:
    over = searched.section.over
    value = value_row(over, searched.told.trials[trial].values).get(name)
    yield 0, value
    for one in copies(searched):
        if one.trial == trial and one.copy is not None:
            value = value_row(over, one.copy.values).get(name)
            yield one.start, value
    yield end, value


def _member_line(job: str, steps: Sequence[tuple[int, Any]], best: bool) -> FigureTrace:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": job,
        "meta": {"network": job},
        "x": [epoch for epoch, _ in steps],
        "y": [value for _, value in steps],
        "line": {"shape": "hv", "color": "@accent" if best else "@idle", "width": 2 if best else 1},
        "hovertext": [
            f"<b>{escaped(job)}</b> from epoch {epoch}: {escaped(shown_value(value))}" for epoch, value in steps
        ],
        "hoverinfo": "text",
    }
