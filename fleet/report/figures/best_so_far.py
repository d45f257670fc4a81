"""The best value of a search, by time and by what the devices were held for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fleet.report.figures.layout import Figure, FigureTrace, axis, escaped, layout, time_unit
from fleet.report.history import RunHistory
from fleet.report.wording import metric, metric_title
from fleet.search.journalled import Result, Searched


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
    return {key: _figure(searched, results, x, title) for key, (x, title) in over.items()}


def held_until(history: RunHistory, time: float) -> float:
    """Device-seconds that jobs have held until a second of the run."""
    return sum(max(0.0, min(span.end, time) - span.start) for span in history.spans)


def _figure(searched: Searched, results: Sequence[Result], at: Sequence[float], title: str) -> Figure:
    told, better = searched.told, max if searched.told.maximise else min
    values = [result.value for result in results if result.value is not None]
    best, steps = values[0], []
    for place, value in zip(at, values):
        best = better(best, value)
        steps.append((place, best))
    y = axis(metric_title(told.metric), nticks=6, zeroline=False, range=_range(values, better))
    if "accuracy" in told.metric:
        y["tickformat"] = ",.0%"
    x = axis(title, rangemode="tozero", zeroline=False, nticks=6, range=[0, 1.03 * max(at)] if max(at) > 0 else None)
    return {"data": [_points(searched, results, at), _line(steps)], "layout": layout(280, x, y, hovermode="closest")}


def _range(values: Sequence[float], better: Callable[..., float]) -> list[float]:
    """All values, but for those that are much worse than most: they stand outside."""
    ordered = sorted(values, reverse=better is max)  # the best first
    best, middle, worst = ordered[0], ordered[len(ordered) // 2], ordered[-1]
    foot = middle + 4 * (middle - best)
    foot = foot if best != middle and abs(worst - best) > abs(foot - best) else worst
    margin = 0.06 * (abs(best - foot) or abs(best) or 1.0)
    return [min(best, foot) - margin, max(best, foot) + margin]


def _points(searched: Searched, results: Sequence[Result], at: Sequence[float]) -> FigureTrace:
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


def _line(steps: Sequence[tuple[float, float]]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "best so far",
        "x": [x for x, _ in steps],
        "y": [best for _, best in steps],
        "line": {"shape": "hv", "color": "@accent", "width": 2},
        "hoverinfo": "skip",
    }
