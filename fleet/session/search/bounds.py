"""How far a search goes: what people may change while it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fleet.journal import events
from fleet.search import Change
from fleet.search.of_spec import trials_of
from fleet.spec import EnsembleSpec, SearchSpec
from fleet.spec.search import Budget

SPEC, WISH, CLOCK = "spec", "wish", "clock"
"""Why a search goes by other bounds."""
_SECONDS = 3600.0  # of an hour


@dataclass(frozen=True)
class Bounds:
    """What a search may use; None stands for as much as it likes.

    Attributes:
        width: virtual slots.
        trials: how many there may be.
        epochs: how many all of them together may train.
        hours: of the run, all its sessions together.
        over: whether the hours were over, so that it has ended.
    """

    width: int
    trials: int | None = None
    epochs: int | None = None
    hours: float | None = None
    over: bool = False

    @classmethod
    def of(cls, search: SearchSpec) -> Bounds:
        """Take the bounds that the section asks for."""
        hours = None if search.budget is None else search.budget.hours
        return cls(search.width, trials_of(search), search.most_epochs, hours)

    @classmethod
    def told(cls, event: events.Bounds) -> Bounds:
        """The bounds that an event of the journal tells."""
        return cls(event.width, event.trials, event.epochs, event.hours, bool(event.over))

    def put_into(self, spec: EnsembleSpec) -> EnsembleSpec:
        """A spec with a search, with these in place of its own."""
        assert spec.search is not None
        budget = None if self.epochs is None else Budget(epochs=self.epochs)
        more = {"width": self.width, "trials": self.trials, "budget": budget}
        return spec.model_copy(update={"search": spec.search.model_copy(update=more)})

    def changed(self, wish: Mapping[str, Any]) -> Bounds:
        """These with those that somebody wishes."""
        return replace(self, **wish)

    def at(self, seconds: float) -> Bounds:
        """These at a second of the run: over where the hours are, and not over any more where there are more now."""
        return replace(self, over=self.hours is not None and seconds >= self.hours * _SECONDS)

    def change(self, time: int) -> Change:
        """What a search is told to go by them from a virtual time on."""
        return Change(time, self.width, self.trials, self.epochs, self.over)
