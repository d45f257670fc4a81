"""Members of a population whose copy of another one's weights is damaged: it is made again if it can be, and told."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fleet.coordination.job_record import Standing
from fleet.coordination.live_state import Recorder
from fleet.journal import events
from fleet.search import Decision
from fleet.session.search.ahead import Files
from fleet.session.search.inheriting import Inheriting


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
