"""The parts of every page: templates, figures as JSON, plotly's source. A reader's browser fetches nothing."""

from __future__ import annotations

import math
from functools import cache
from importlib.resources import files
from statistics import fmean, pstdev
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from fleet.journal.whole_files import strict_json
from fleet.report import wording


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
