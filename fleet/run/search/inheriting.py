"""Carries out what population-based training decides: members that go on from the weights of better ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fleet.search import Decision
from fleet.spec.changeable_keys import OPTIMIZER
from trainers.state.inherited import inherit
from trainers.state.way_back import drop_other_ways_back, keep_way_back, way_back


class Inheriting:
    """Keeps each member's state of its last comparison, from which others may go on, and writes that of those who do.

    All of it can be done again: what is written follows from what is kept, and that is kept before its result is told.

    Args:
        name: of a trial's job.
        folder: of a job's checkpoints.
    """

    def __init__(self, name: Callable[[int], str], folder: Callable[[str], Path]) -> None:
        self._name, self._folder = name, folder

    def told(self, trial: int, epoch: int) -> None:
        """A member is about to be compared after so many epochs."""
        keep_way_back(self._of(trial), epoch)

    def carry_out(self, decision: Decision) -> None:
        """Let a member go on: from another one's state, if that is decided."""
        if decision.kind != "resume":
            return
        own, copy = self._of(decision.trial), decision.copy
        if copy is not None:
            arguments = {path.removeprefix(OPTIMIZER): value for path, value in copy.values.items()}
            mine, theirs = _kept(own, decision.start), _kept(self._of(copy.donor), copy.epoch)
            inherit(own / mine.name, mine, theirs, arguments)
        drop_other_ways_back(own, decision.start)

    def over(self, trials: int) -> None:
        """Nobody goes on from anybody any more."""
        for trial in range(trials):
            drop_other_ways_back(self._of(trial), None)

    def _of(self, trial: int) -> Path:
        return self._folder(self._name(trial))


def _kept(folder: Path, epoch: int) -> Path:
    """The checkpoint of an epoch's end; of a member that is done, it may be the newest one alone."""
    kept = way_back(folder, epoch)
    return kept if kept.exists() else folder / kept.name
