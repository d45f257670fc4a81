"""`fleet status`: how a run stands, read from its directory alone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.commands.arguments import AsJson, RunFolder
from fleet.commands.status_answer import answer, looked
from fleet.report.standing import Look

if TYPE_CHECKING:
    from rich.console import RenderableType

_AROUND = 14  # lines that are no rows of the table


def status(
    directory: RunFolder,
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", help="renew it until ctrl-C or the run's end")] = False,
    every: Annotated[float, typer.Option(min=0.2, metavar="SECONDS", help="between two looks of --watch")] = 2.0,
    whole: Annotated[bool, typer.Option("--all", help="tell the networks that do not train, too")] = False,
) -> None:
    """Tell how a run stands: who trains where, what waits for what, when it ends.

    It reads the run directory and changes nothing there, so it works from a login node, and after the run's end. Exit
    codes: 0 told; 2 the directory holds no run.
    """
    if as_json or not watch:
        answer(directory, as_json, whole)
    else:
        _watch(Look(directory), every, whole)


def _watch(look: Look, every: float, whole: bool) -> None:
    """Renew the screen; the last look stays there."""
    from rich.console import Console
    from rich.live import Live

    from fleet.report.standing_view import status_view

    console, standing = Console(), looked(look, whole)
    capable = console.is_terminal and not console.is_dumb_terminal
    room = max(3, console.size.height - _AROUND) if capable else None

    def picture() -> RenderableType:
        return status_view(standing, room)

    try:
        with Live(picture(), console=console, auto_refresh=False, transient=False) as live:
            while standing.state not in ("done", "failed", "stopped", "killed"):
                time.sleep(every)
                standing = looked(look, whole)
                live.update(picture(), refresh=True)
    except KeyboardInterrupt:
        pass
