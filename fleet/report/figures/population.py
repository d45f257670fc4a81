"""Population-based training: who went on from whom, and how the values of all members changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fleet.report.figures.layout import Figure, FigureTrace, axis, escaped, layout, whole_ticks
from fleet.report.told_values import shown_value
from fleet.report.wording import metric, plural
from fleet.search import Decision
from fleet.search.journalled import Searched
from fleet.search.space import value_row

MOST_PARAMETERS = 8
_MOST, _LEAST = 900, 170
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
    height = min(_MOST, max(_LEAST, 110 + trials * (20 if trials <= 30 else 9)))
    traces = [_bars(searched), _moves(searched), _winner(searched), _marks(searched)]
    return {"data": traces, "layout": layout(height, x, y, hovermode="closest", bargap=0.6)}


def _bars(searched: Searched) -> FigureTrace:
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
        "type": "scatter", "mode": "lines", "name": name, "x": list(x), "y": list(y), "line": line, "hoverinfo": "skip",
    }  # fmt: skip


def _marks(searched: Searched) -> FigureTrace:
    told, there = searched.told, copies(searched)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "goes on from another",
        "meta": {"networks": [told.trials[one.trial].job for one in there]},
        "x": [one.start for one in there],
        "y": [one.trial for one in there],
        "marker": {"symbol": "circle", "size": 7, "color": "@accent"},
        "hovertext": [_hover(searched, one) for one in there],
        "hoverinfo": "text",
    }


def _hover(searched: Searched, one: Decision) -> str:
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
    traces = [_line(job, steps, job == best) for job, steps in sorted(lines, key=lambda line: line[0] == best)]
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


def _line(job: str, steps: Sequence[tuple[int, Any]], best: bool) -> FigureTrace:
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
