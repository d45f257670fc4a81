"""`fleet profile`: an offline profiling run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fleet.commands.arguments import Preprocessors, Settings, SpecFile, Trainers, changes_of
from fleet.commands.ending import mendable
from fleet.commands.ranks import run_on_ranks
from fleet.session.options import ProfileOrder, RunOptions


def profile(
    spec: SpecFile,
    out: Annotated[Path, typer.Option(help="where the rates are written", show_default=False)],
    trainers: Trainers = None,
    preprocessors: Preprocessors = None,
    settings: Settings = None,
    part: Annotated[
        str | None, typer.Option(help="measure only the I-th of K parts of the jobs, for job arrays", metavar="I/K")
    ] = None,
) -> None:
    """Offline profiling run: measure how fast each job trains on how many devices, and write the rates to a file."""
    with mendable():
        numbered = part_of_jobs(part)
    changes = changes_of(trainers, preprocessors, None, settings)
    sys.exit(run_on_ranks(RunOptions(spec, changes, profile=ProfileOrder(out, numbered))))


def part_of_jobs(text: str | None) -> tuple[int, int] | None:
    """`2/4` is the second of four parts."""
    if text is None:
        return None
    number, _, parts = text.partition("/")
    if not (number.isdigit() and parts.isdigit() and 1 <= int(number) <= int(parts)):
        raise ValueError(f"--part {text}: write I/K, such as 2/4 for the second of four parts")
    return int(number), int(parts)
