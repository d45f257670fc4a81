"""The sampler that gives fleet the plan's trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.searched.peers.plan import Plan


class Planned:
    """Trial i has the values of the plan's trial i.

    Args:
        over: of the search; not looked at.
        seed: of the search; not looked at.
        folder: with the plan.
    """

    prefetch = None  # it looks at no results

    def __init__(self, over: Mapping[str, Any], seed: int, folder: str) -> None:
        self._trials = Plan.read(Path(folder)).trials

    def suggest(self, trial: int, records: Sequence[Any]) -> Mapping[str, Any]:
        """The values of a trial."""
        values = self._trials[trial]
        return {
            "model.arguments.widths": values["widths"],
            "model.arguments.batch_norm": values["batch_norm"],
            "optimizer.arguments.lr": values["lr"],
            "optimizer.arguments.momentum": values["momentum"],
        }
