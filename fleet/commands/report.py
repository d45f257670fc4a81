"""`fleet report`: one page that tells what a run did."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fleet.commands.arguments import RunFolder
from fleet.commands.ending import end
from fleet.machine.launch.launched import BAD_INPUT


def report(
    directory: RunFolder,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="where the page goes; default: report.html in DIR", show_default=False),
    ] = None,
) -> None:
    """Write one self-contained report.html from the run's journal."""
    from fleet.report.run_page import write_report

    if not (directory / "journal.jsonl").is_file():
        end(BAD_INPUT, f"{directory} holds no run: there is no journal.jsonl in it; name the --out of a `fleet run`")
    print(write_report(directory, out))
