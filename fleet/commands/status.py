"""`fleet status`: how a run stands, read from its directory alone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.commands.arguments import AsJson, RunFolder
from fleet.commands.ending import end
from fleet.machine.launch.exit_codes import BAD_INPUT

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from fleet.report.status.looking import Look
    from fleet.report.status.standing import Standing

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
    from fleet.report.status.looking import Look

    look = Look(directory)
    standing = _looked(look, directory, whole)
    if as_json:
        from fleet.report.status.as_json import as_json as content
        from fleet.run_directory.strict_json import strict_json

        print(strict_json(content(standing), indent=1))
        return
    from rich.console import Console

    from fleet.report.status.shown import shown

    console = Console()
    if watch:
        _watch(look, standing, console, every, whole)
    else:
        console.print(shown(standing))


def _looked(look: Look, directory: Path, whole: bool) -> Standing:
    standing = look.standing(whole)
    if standing is None:
        from fleet.run_directory.near_runs import no_run

        end(BAD_INPUT, no_run(directory))
    return standing


def _watch(look: Look, standing: Standing, console: Console, every: float, whole: bool) -> None:
    """Renew the screen; the last look stays there."""
    from rich.live import Live

    from fleet.report.status.shown import shown

    capable = console.is_terminal and not console.is_dumb_terminal
    room = max(3, console.size.height - _AROUND) if capable else None

    def picture() -> RenderableType:
        return shown(standing, room)

    try:
        with Live(picture(), console=console, auto_refresh=False, transient=False) as live:
            while standing.state not in ("done", "failed", "stopped", "killed"):
                time.sleep(every)
                standing = _looked(look, look.directory, whole)
                live.update(picture(), refresh=True)
    except KeyboardInterrupt:
        pass
