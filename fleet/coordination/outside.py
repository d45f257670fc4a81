"""What a coordinator needs of the run around it."""

from __future__ import annotations

from collections.abc import Collection

from fleet.coordination.checkpointed import Standing
from fleet.journal.work_note import Death


class Outside:
    """The run around a coordinator: nothing comes from it, and nothing there has to know anything."""

    def stop_requested(self) -> bool:
        """Whether the run should stop, since a signal or the end of its time asks for it."""
        return False

    def halted(self) -> Collection[str]:
        """Jobs that somebody wants stopped by name."""
        return ()

    def take_in(self) -> None:
        """Add jobs to the books that have come from outside; called now and then."""

    def undecided(self) -> Collection[str]:
        """Jobs with a deadline whose owners wait to hear whether it is promised."""
        return ()

    def decided(self, job: str, promised: bool, why: str) -> None:
        """Tell whether the deadline of such a job is promised; if not, why."""

    def guess(self, job: str) -> float | None:
        """Samples/s on one device of a job that nobody has measured, by what is known of others; None: nobody knows."""
        return None

    def tell_batch(self, job: str) -> None:
        """Tell everybody the batch that a job has by the books, if they know another."""

    def stands(self, job: str) -> Standing:
        """Read where a job stands by its checkpoints; asked when ranks that trained it are lost."""
        return Standing()

    def death(self, devices: tuple[int, ...]) -> Death | None:
        """How the process of a lost rank ended that trained on one of these; None: nobody knows."""
        return None

    def stuck(self) -> str:
        """Where the ranks that do not move stand in their code."""
        return ""

    def waits(self, devices: tuple[int, ...]) -> bool:
        """Whether the ranks of these devices do not move, and only because they wait for samples or other ranks."""
        return False

    def save(self) -> None:
        """Renew what people read of the run; called after each event that changes it."""
