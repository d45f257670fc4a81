"""Carries out what population-based training decides: members that go on from the weights of better ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fleet.search import Copy, Decision
from fleet.spec.search import OPTIMIZER
from trainers import CheckpointError
from trainers.state.kept_checkpoints import drop_other_rollbacks, inherit, keep_rollback, rollback_file


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
        keep_rollback(self._of(trial), epoch)

    def carry_out(self, decision: Decision) -> None:
        """Let a member go on: from another one's state, if that is decided."""
        if decision.kind != "resume":
            return
        own, copy = self._of(decision.trial), decision.copy
        if copy is not None:
            self._copy(own, _kept(own, decision.start), _kept(self._of(copy.donor), copy.epoch), copy)
        drop_other_rollbacks(own, decision.start)

    def again(self, decision: Decision) -> str:
        """Let a member go on once more from another one's state, as what it had of that is damaged.

        Returns:
            Why it cannot: what the copy is made of is kept no longer, or damaged, too; "" if it does.
        """
        own, copy = self._of(decision.trial), decision.copy
        assert copy is not None, "it goes on from another one"
        try:
            self._copy(own, rollback_file(own, decision.start), rollback_file(self._of(copy.donor), copy.epoch), copy)
        except CheckpointError as error:
            return str(error)
        return ""

    @staticmethod
    def _copy(own: Path, mine: Path, theirs: Path, copy: Copy) -> None:
        arguments = {path.removeprefix(OPTIMIZER): value for path, value in copy.values.items()}
        inherit(own / mine.name, mine, theirs, arguments)

    def over(self, trials: int) -> None:
        """Nobody goes on from anybody any more."""
        for trial in range(trials):
            drop_other_rollbacks(self._of(trial), None)

    def _of(self, trial: int) -> Path:
        return self._folder(self._name(trial))


def _kept(folder: Path, epoch: int) -> Path:
    """The checkpoint of an epoch's end; of a member that is done, it may be the newest one alone."""
    kept = rollback_file(folder, epoch)
    return kept if kept.exists() else folder / kept.name
