"""What ends a run that is at fault itself no more than its user."""

from __future__ import annotations

from fleet.machine.launch.exit_codes import FAILED


class RunError(RuntimeError):
    """The run cannot go on, through no fault of the program; the text is all that a person needs.

    Attributes:
        code: what the run ends with.
    """

    code = FAILED
