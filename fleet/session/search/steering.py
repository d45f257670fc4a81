"""How far a search goes, as its spec, people and the clock say; and trials that people train beside it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from fleet.coordination.live_state import Recorder
from fleet.journal import events
from fleet.journal.run_requests import OwnTrial, SearchRequests
from fleet.search.space import check_one_metric, check_values
from fleet.session.search.bounds import CLOCK, SPEC, WISH, Bounds
from fleet.session.search.recorded import Recorded, own_trial_change
from fleet.spec import SearchSpec

SECONDS_BETWEEN_LOOKS = 1.0


class Steering:
    """Tells a search of other bounds, and of people's own trials, at its virtual time; the journal has it first.

    Args:
        section: of the spec.
        recorded: the search as the journal has it.
        books: of the run.
        wishes: what people left in the run directory.
        clock: seconds; wishes are looked for at most once in SECONDS_BETWEEN_LOOKS.
    """

    def __init__(
        self,
        section: SearchSpec,
        recorded: Recorded,
        books: Recorder,
        wishes: SearchRequests,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._section, self._search, self._journal, self._wishes = section, recorded.search, books.journal, wishes
        self._bounds, self._asked, self._clock = recorded.bounds, recorded.asked, clock
        self._taken = set(recorded.wishes)
        self._own: dict[int, events.OwnTrial] = dict(recorded.own_trials)
        self._refused: set[int] = set()
        self._looked = -float("inf")

    @property
    def is_over(self) -> bool:
        """Whether the search's hours are over."""
        return self._bounds is not None and self._bounds.over

    def begin(self) -> bool:
        """Let the search go by the bounds of the spec where they are others than at the last start; whether a search
        that was over by the clock goes on.
        """
        asked, was_over = Bounds.of(self._section), self.is_over
        bounds = asked if self._bounds is None or asked != self._asked else self._bounds
        self._go_by(bounds.at(self._journal.seconds()), SPEC)
        return was_over and not self.is_over

    def look(self) -> None:
        """Take in what people wish, at most once a second, and end the search where its hours are over."""
        if self._clock() - self._looked < SECONDS_BETWEEN_LOOKS:
            return
        self._looked = self._clock()
        assert self._bounds is not None, "it has begun"
        for number, wish in self._wishes.changes().items():
            if number not in self._taken:
                self._taken.add(number)
                self._go_by(self._bounds.changed(wish).at(self._journal.seconds()), WISH, number)
        for trial in self._wishes.trials():
            self._take(trial)
        self._go_by(self._bounds.at(self._journal.seconds()), CLOCK)

    def _go_by(self, bounds: Bounds, by: str, wish: int | None = None) -> None:
        """Let the search go by bounds, if they are others; a wish is written down in any case."""
        if bounds == self._bounds and wish is None:
            return
        at = self._search.clock
        first, *further = (
            events.SearchedMetric(metric, "max" if more else "min")
            for metric, more in zip(self._section.metrics, self._section.maximises)
        )
        self._journal.write(
            events.Bounds(
                time=at,
                **asdict(bounds),
                metric=first.metric,
                mode=first.mode,
                by=by,
                wish=wish,
                further=tuple(further),
            )
        )
        self._search.changed(bounds.change(at))
        self._bounds = bounds

    def _take(self, trial: OwnTrial) -> None:
        """Tell the search how a person's trial stands, if it does not know."""
        known = self._own.get(trial.number)
        if trial.number in self._refused or (known is not None and known.status == trial.status):
            return
        try:
            check_values(self._section.over, trial.values)
            check_one_metric(self._section.metrics)
        except ValueError as error:  # of a file that somebody wrote by hand
            self._refused.add(trial.number)
            text = f"trial {trial.number} of somebody's own is left out: {error}"
            self._journal.write(events.Warned(text=text))
            return
        time, values = self._search.clock, dict(trial.values)
        told = events.OwnTrial(trial=trial.number, time=time, values=values, status=trial.status, value=trial.value)
        self._own[trial.number] = self._journal.write(told)
        self._search.changed(own_trial_change(told, self._section))

    def to_json(self) -> list[dict[str, Any]]:
        """What run.json says of trials that people train."""
        return [
            {"number": number, "values": told.values, "status": told.status, "value": told.value}
            for number, told in sorted(self._own.items())
        ]
