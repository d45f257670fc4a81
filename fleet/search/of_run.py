"""The section `search` of a run that has begun, as its directory keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.search.journalled import Journalled
from fleet.spec import SearchSpec


def section_of(kept: Mapping[str, Any], told: Journalled) -> SearchSpec | None:
    """What a run's search was asked for; None: it has none, or it has not begun.

    Args:
        kept: the content of the run's spec.json, which has no bounds: these may change.
        told: what the run's journal says; its last bounds count.

    Raises:
        ValueError: another version of fleet wrote it, and this one does not understand it.
    """
    if not kept.get("search") or not told.bounds:
        return None
    last = told.bounds[-1]
    budget = {key: most for key, most in (("epochs", last.epochs), ("hours", told.hours)) if most is not None} or None
    modes = ["max" if more else "min" for more in (told.maximise, *(more for _, more in told.further))]
    further = {"mode": modes if told.further else modes[0]} if told.metric else {}
    stopping = {"confidence": 0.0, **kept["search"]["stopping"]}
    asked = {**kept["search"], **further, "width": last.width, "trials": last.trials, "budget": budget}
    asked["stopping"] = stopping if stopping["name"] == "halving" else kept["search"]["stopping"]
    return SearchSpec.model_validate(asked)
