"""Population-based training, carried out: members that go on from the weights of better ones, and damaged copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from fleet.coordination.job_record import Standing
from fleet.coordination.live_state import Recorder
from fleet.journal import events
from fleet.search import Copy, Decision
from fleet.session.search.ahead import Files
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


class DamagedCopies:
    """Looks, as a session begins, where members do not stand any more where their last copy brought them.

    Args:
        books: of the run.
        inheriting: makes copies.
        name: of a trial's job.
        files: of the run.
    """

    def __init__(self, books: Recorder, inheriting: Inheriting, name: Callable[[int], str], files: Files) -> None:
        self._books, self._inheriting, self._name, self._files = books, inheriting, name, files
        self._warnings: list[tuple[str, str]] = []  # a job, and what is told of it

    def mend(self, decisions: Iterable[Decision]) -> dict[str, Standing]:
        """Copy again what is damaged; returns where the jobs stand then whose copies could be made.

        Args:
            decisions: that were carried out, in their order.
        """
        latest = {one.trial: one for one in decisions if one.kind in ("start", "resume")}
        mended = (self._mend(one) for one in latest.values() if one.copy is not None)
        return {name: found for name, found in mended if found is not None}

    def tell(self) -> None:
        """Write down what was damaged, and what is used in its place."""
        for name, text in self._warnings:
            self._books.journal.write(events.Warned(text=text, job=name))
        self._warnings.clear()

    def _mend(self, decision: Decision) -> tuple[str, Standing | None]:
        name, copy = self._name(decision.trial), decision.copy
        job = self._books.state.jobs.get(name)
        if copy is None or job is None or job.status in ("done", "failed") or job.epoch >= decision.start:
            return name, None
        before = self._files.stands(name)
        damage = "; ".join(map(str, before.rejected)) or f"{self._files.folder(name)}: a checkpoint is missing"
        theirs = f"the weights of {self._name(copy.donor)} after epoch {copy.epoch}, from which it went on,"
        if why := self._inheriting.again(decision):
            instead = f"goes on from its own after epoch {before.epoch}" if before.path else "begins anew with its own"
            self._warnings.append((name, f"{damage}; {theirs} cannot be copied again ({why}): it {instead}"))
            return name, None
        self._warnings.append((name, f"{damage}; {theirs} are copied again"))
        found = self._files.stands(name)
        self._books.note(self._books.state.stands_at, name, found)
        return name, found
