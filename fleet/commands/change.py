"""`fleet change`: a run's search goes further, or less far, than its spec says."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.commands.arguments import RunFolder
from fleet.commands.ending import end, mendable
from fleet.machine.launch.launched import STOPPED

if TYPE_CHECKING:
    from fleet.journal.events import Bounds

_POLL_SECONDS = 0.2

_Trials = Annotated[int | None, typer.Option(help="how many trials there may be in all")]
_Width = Annotated[int | None, typer.Option(help="trials under way at a time, in virtual time")]
_Epochs = Annotated[int | None, typer.Option(help="how many epochs all trials together may train")]
_Hours = Annotated[float | None, typer.Option(help="hours of the run, all its starts together")]
_Wait = Annotated[float, typer.Option(min=0, metavar="SECONDS", help="how long to wait for the run's answer")]


def change(
    directory: RunFolder,
    trials: _Trials = None,
    width: _Width = None,
    epochs: _Epochs = None,
    hours: _Hours = None,
    wait: _Wait = 120.0,
) -> None:
    """Give a run's search other bounds, while it goes on or for its next start; what it decided stays.

    Exit codes: 0 it goes by them, or its next start will; 2 bad input; 75 the run has not answered yet.
    """
    from fleet.session.from_python import attach

    asked = {"trials": trials, "width": width, "epochs": epochs, "hours": hours}
    with mendable():
        run = attach(directory)
        wish = run.change(**{name: bound for name, bound in asked.items() if bound is not None})
    limit = time.monotonic() + wait
    while (taken := _taken_in(directory, wish)) is None and not run.wait(0):
        if time.monotonic() >= limit:
            end(STOPPED, f"rank 0 has not answered within {wait:g} s; the wish stays in {directory}")
        time.sleep(_POLL_SECONDS)
    if taken is None and (taken := _taken_in(directory, wish)) is None:
        print(f"nobody runs {directory} now; its next start goes by that")
    else:
        print(f"the search goes by that from virtual time {taken.time} on")


def _taken_in(directory: Path, wish: int) -> Bounds | None:
    """The event that says that the run has taken the wish in; None: there is none."""
    from fleet.journal.events import Bounds
    from fleet.journal.journal import read_journal

    told = (event for event in read_journal(directory / "journal.jsonl") if isinstance(event, Bounds))
    return next((event for event in told if event.wish == wish), None)
