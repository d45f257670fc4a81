"""The parts of every page: templates, colours, layouts of figures, plotly. A reader's browser fetches nothing."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from statistics import fmean, pstdev
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from fleet.journal.whole_files import strict_json
from fleet.report import wording
from fleet.report.wording import printable


@cache
def page_environment() -> Environment:
    """Templates of this package; texts are escaped, and an unknown name is an error."""
    made = Environment(
        loader=FunctionLoader(_template),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        duration=wording.duration,
        count=wording.count,
        rate=wording.rate,
        cost=wording.cost,
        energy=wording.energy,
        metric_title=wording.metric_title,
        devices=wording.devices,
        plural=wording.plural,
        why=lambda text: wording.WHY.get(text, text),
        finite=lambda value: value if value is not None and math.isfinite(value) else "",
    )
    made.globals.update(metric=wording.metric, mean=fmean, deviation=pstdev)
    return made


def plotly() -> Markup:
    """The source of plotly."""
    from plotly.offline import get_plotlyjs  # heavy, and only a page with figures needs it

    return Markup(get_plotlyjs())


def script_json(value: Any) -> Markup:
    """JSON that may stand inside a script element; numbers that are not finite become null."""
    text = strict_json(value, separators=(",", ":"))
    for character in "<>&'":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _template(name: str) -> str:
    return (files("fleet.report") / "templates" / name).read_text(encoding="utf-8")


_FEW = ("#4c7fbf", "#e08a3c", "#3fa877", "#cf5a8b", "#8a74cf", "#bd9a2a", "#2fa5b0", "#d2605a", "#7f9440", "#a3765c")
_GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))
_LEVELS = ((0.66, 0.13), (0.58, 0.11), (0.74, 0.10))


def network_colours(names: Sequence[str]) -> dict[str, str]:
    """A colour (#rrggbb) for each name, by its place: chosen by hand up to ten, then golden-angle hues in OKLCH."""
    return {name: colour_of(place, len(names)) for place, name in enumerate(names)}


def colour_of(place: int, networks: int) -> str:
    """The colour of the network at a place among so many."""
    return _FEW[place] if networks <= len(_FEW) else _spread(place)


def ink_on(colour: str) -> str:
    """Black or white, whichever is easier to read on `colour` (WCAG relative luminance)."""
    red, green, blue = (_linear(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#ffffff" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 * 0.6 else "#10151c"


@cache
def _spread(place: int) -> str:
    lightness, chroma = _LEVELS[place % len(_LEVELS)]
    hue = place * _GOLDEN_ANGLE + 4.4
    return _from_oklab(lightness, chroma * math.cos(hue), chroma * math.sin(hue))


def _from_oklab(lightness: float, a: float, b: float) -> str:
    """OKLab (Ottosson, 2020) to #rrggbb; what sRGB cannot show is clipped."""
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    return "#" + "".join(f"{round(255 * _gamma(channel)):02x}" for channel in linear)


def _gamma(linear: float) -> float:
    clipped = min(1.0, max(0.0, linear))
    return 12.92 * clipped if clipped <= 0.0031308 else 1.055 * clipped ** (1 / 2.4) - 0.055


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else float(((channel + 0.055) / 1.055) ** 2.4)


Figure = dict[str, Any]
FigureTrace = dict[str, Any]


def escaped(text: str) -> str:
    """`text` for plotly, which reads texts as HTML."""
    return html.escape(printable(text))


def axis(title: str = "", **keys: Any) -> dict[str, Any]:
    """One axis; its colours are the page's."""
    return {
        "title": {"text": title, "standoff": 10, "font": {"size": 13, "color": "@muted"}},
        "gridcolor": "@rule",
        "linecolor": "@rule",
        "zerolinecolor": "@rule",
        "tickfont": {"size": 12, "color": "@muted"},
        "automargin": True,
        **keys,
    }


def whole_ticks(first: int, last: int, most: int = 10) -> dict[str, Any]:
    """Ticks at whole numbers, at most `most` and a bit of them; a screen of a phone takes every other one."""
    step = max(1, -(-(last - first + 1) // most))
    return {"tickmode": "linear", "tick0": first, "dtick": step, "tickformat": "d"}


def time_unit(wall: float) -> tuple[float, str]:
    """Seconds for short runs, then minutes, then hours: the divisor and the word."""
    if wall < 600:
        return 1.0, "Seconds"
    return (60.0, "Minutes") if wall < 4 * 3600 else (3600.0, "Hours")


def layout(height: int, x: dict[str, Any], y: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """A calm layout without legend, `height` pixels high, as wide as the page."""
    return {
        "height": height,
        "margin": {"l": 8, "r": 12, "t": 12, "b": 8, "pad": 0},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "@ink", "size": 13},
        "hoverlabel": {"bgcolor": "@surface", "bordercolor": "@rule", "font": {"color": "@ink"}, "align": "left"},
        "showlegend": False,
        "xaxis": x,
        "yaxis": y,
        **keys,
    }
