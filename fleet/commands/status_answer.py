"""What `fleet status` answers; the parser of command lines, which takes longer, is not loaded for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fleet.commands.entry import end
from fleet.machine.launch.launched import BAD_INPUT
from fleet.report.standing import Look

if TYPE_CHECKING:
    from fleet.report.standing import RunStanding


def looked(look: Look, whole: bool) -> RunStanding:
    """Return how the run stands; the program ends where the directory holds none."""
    standing = look.standing(whole)
    if standing is None:
        from fleet.journal.directory import no_run

        end(BAD_INPUT, no_run(look.directory))
    return standing


def answer(directory: Path, as_json: bool, whole: bool) -> None:
    """Print once how the run stands; whole: jobs that do not train, too."""
    standing = looked(Look(directory), whole)
    if as_json:
        from fleet.journal.whole_files import strict_json
        from fleet.report.standing import as_json as content

        print(strict_json(content(standing), indent=1))
        return
    from rich.console import Console

    from fleet.report.standing_view import status_view

    Console().print(status_view(standing))
