"""`fleet predict`: several trained networks answer together, and how good each and all are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fleet.commands.arguments import AsJson, RunFolder
from fleet.commands.ending import mendable
from fleet.machine.terminal import plain_table

COLUMNS = ("accuracy", "nll", "brier", "ece")

_Data = Annotated[
    str | None,
    typer.Option(help="a data set of the run's spec; default: the one that the networks share", show_default=False),
]
_Members = Annotated[
    str, typer.Option(help="all, best:K, greedy:K, or names with commas between them", metavar="MEMBERS")
]
_Vote = Annotated[
    Literal["soft", "hard"], typer.Option(help="soft: the mean of probabilities; hard: the shares of answers")
]
_Out = Annotated[
    Path | None, typer.Option(help="write all probabilities to this HDF5 file", metavar="FILE", show_default=False)
]
_Which = Annotated[
    Literal["best", "last"], typer.Option("--checkpoint", help="best: the best that is kept, else the last; or last")
]
_Device = Annotated[str, typer.Option(help="where the networks are, as torch names it")]


def predict(
    directory: RunFolder, data: _Data = None, members: _Members = "all", vote: _Vote = "soft", out: _Out = None,
    checkpoint: _Which = "best", device: _Device = "cpu", as_json: AsJson = False,
) -> None:  # fmt: skip
    """Let a run's networks predict its held-out samples, and tell how good each network and all together are.

    Each sample is read and decoded once, whatever the number of networks. Reads the run only. Exit codes: 0, or 2 bad
    input.
    """
    from fleet.harvest.errors import HarvestError
    from fleet.run.predict.answer import told_of
    from fleet.run.predict.asked import Asked
    from fleet.spec import ReferenceProblem, SpecError
    from preprocess import CorruptLimitError, SampleError, SourceError, TransformError
    from trainers import CheckpointError

    kinds = (
        HarvestError, SpecError, ReferenceProblem, CheckpointError, SourceError, TransformError, SampleError,
        CorruptLimitError,
    )  # fmt: skip
    with mendable(*kinds):
        told = told_of(directory, Asked(members, data, vote, out, checkpoint, device))
    _print(told, as_json)


def _print(told: dict[str, Any], as_json: bool) -> None:
    from rich.console import Console

    from fleet.run_directory.strict_json import strict_json

    if as_json:
        print(strict_json(told, indent=1))
        return
    console = Console()
    console.print(_table(told))
    figures = told["ensemble"]
    half = f"; the networks were chosen on the other {told['chosen_on']:,}" if "chosen_on" in told else ""
    text = f"disagreement {figures['disagreement']:.4f}, diversity {figures['diversity']:.4f}"
    console.print(f"{text}, on {told['samples']:,} held-out samples{half}", soft_wrap=True, highlight=False)


def _table(told: dict[str, Any]) -> Any:
    """One row for each network, and one for all together."""
    from rich.text import Text

    from fleet.report import wording

    table = plain_table()
    table.add_column("network", no_wrap=True)
    for title in ("weight", *COLUMNS):
        table.add_column(title, justify="right", no_wrap=True)
    for name, figures in told["members"].items():
        cells = (f"{figures[column]:.4f}" for column in COLUMNS)
        table.add_row(Text(wording.printable(name)), f"{told['weights'][name]:.3f}", *cells)
    cells = (f"{told['ensemble'][column]:.4f}" for column in COLUMNS)
    table.add_row("all together", "", *cells, style="bold")
    return table
