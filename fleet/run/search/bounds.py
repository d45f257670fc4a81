"""How far a search goes: what people may change while it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleet.search import Change
from fleet.spec import EnsembleSpec, SearchSpec
from fleet.spec.search import Budget


@dataclass(frozen=True)
class Bounds:
    """What a search may use; None stands for as much as it likes.

    Attributes:
        width: virtual slots.
        trials: how many there may be.
        epochs: how many all of them together may train.
    """

    width: int
    trials: int | None = None
    epochs: int | None = None

    @classmethod
    def of(cls, search: SearchSpec) -> Bounds:
        """Those that the section asks for."""
        return cls(search.width, search.most_trials, None if search.budget is None else search.budget.epochs)

    def put_into(self, spec: EnsembleSpec) -> EnsembleSpec:
        """A spec with a search, with these in place of its own."""
        assert spec.search is not None
        budget = None if self.epochs is None else Budget(epochs=self.epochs)
        more = {"width": self.width, "trials": self.trials, "budget": budget}
        return spec.model_copy(update={"search": spec.search.model_copy(update=more)})

    @classmethod
    def of_line(cls, line: Mapping[str, Any]) -> Bounds:
        """Those of a line `bounds` of the journal."""
        return cls(line["width"], line.get("trials"), line.get("epochs"))

    def change(self, time: int) -> Change:
        """What a search is told to go by them from a virtual time on."""
        return Change(time, self.width, self.trials, self.epochs)
