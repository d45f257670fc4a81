"""What ends a run that is at fault itself no more than its user."""

from __future__ import annotations

from fleet.machine.launch.exit_codes import FAILED, LOST


class RunError(RuntimeError):
    """The run cannot go on, through no fault of the program; the text is all that a person needs.

    Attributes:
        code: what the run ends with.
    """

    code = FAILED


class SilentGroupError(RunError):
    """Groups have said nothing for too long: their jobs have failed, and the same command goes on without them.

    Attributes:
        jobs: theirs.
    """

    code = LOST

    def __init__(self, text: str, *jobs: str) -> None:
        super().__init__(text)
        self.jobs = jobs
