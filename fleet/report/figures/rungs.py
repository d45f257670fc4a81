"""The rungs of a search: how far each trial trained when, in virtual time, and what was decided there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleet.report.figures.layout import Figure, FigureTrace, axis, escaped, layout, whole_ticks
from fleet.report.wording import metric, plural
from fleet.search.journalled import Searched

ENDS = {
    "pause": ("paused, and goes on no more so far", "square-open", "@muted"),
    "promoted": ("promoted", "triangle-right", "@accent"),
    "stop": ("stopped", "line-ns-open", "@ink"),
    "done": ("all epochs", "circle", "@good"),
    "fail": ("failed", "x-thin-open", "@bad"),
}
"""What a result means for its trial -> what people call it, its mark, its colour."""
_SCALE = ("#c5d3e6", "#9db7da", "#759bcd", "#4c7fbf", "#36609a", "#254572")
_MOST, _LEAST = 900, 170


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
    bars = _bars(searched)
    if not bars:
        return None
    trials = len(searched.rows)
    traces = [_segments(searched, bars), *(t for kind in ENDS if (t := _marks(searched, bars, kind)) is not None)]
    height = min(_MOST, max(_LEAST, 110 + trials * (20 if trials <= 30 else 9)))
    x = axis("Virtual time", range=[0, 1.02 * max(bar.finish for bar in bars)], zeroline=False, rangemode="tozero")
    y = axis("Trial", range=[trials - 0.4, -0.6], showgrid=False, zeroline=False, **whole_ticks(0, trials - 1, 20))
    return {"data": traces, "layout": layout(height, x, y, hovermode="closest", barmode="overlay", bargap=0)}


def kinds_shown(searched: Searched) -> list[tuple[str, str, str]]:
    """Mark, colour and meaning of what was decided at least once; for the legend."""
    there = {bar.kind for bar in _bars(searched)}
    signs = {"pause": "\u25a1", "promoted": "\u25b6", "stop": "|", "done": "\u25cf", "fail": "\u00d7"}
    return [(signs[kind], colour[1:], told) for kind, (told, _, colour) in ENDS.items() if kind in there]


def _bars(searched: Searched) -> list[_Bar]:
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
            "color": [_SCALE[_shade(levels[bar.end], len(levels))] for bar in bars],
            "line": {"width": 0},
            "pattern": {
                "shape": ["" if _is_known(searched, bar) else "/" for bar in bars], "fgcolor": "@surface", "size": 6,
                "solidity": 0.4, "fillmode": "overlay",
            },
        },
        "hovertext": [_hover(searched, bar) for bar in bars],
        "hoverinfo": "text",
    }  # fmt: skip


def _marks(searched: Searched, bars: Sequence[_Bar], kind: str) -> FigureTrace | None:
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
        "hovertext": [_hover(searched, bar) for bar in there],
        "hoverinfo": "text",
        "cliponaxis": False,
    }


def _hover(searched: Searched, bar: _Bar) -> str:
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
    return 2 if levels == 1 else round(level * (len(_SCALE) - 1) / (levels - 1))


def rung_shades(searched: Searched) -> list[tuple[str, int]]:
    """Colour and epochs of each rung, for the legend; of many the first, some between and the last."""
    ends = sorted({one.end for one in searched.told.decisions if one.kind in ("start", "resume")})
    chosen = ends if len(ends) <= len(_SCALE) else ends[:: -(-len(ends) // len(_SCALE))]
    places: Mapping[int, int] = {end: place for place, end in enumerate(ends)}
    return [(_SCALE[_shade(places[end], len(ends))], end) for end in chosen]
