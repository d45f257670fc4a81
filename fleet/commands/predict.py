"""`fleet predict`: several trained networks answer together, and how good each and all are."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fleet.commands.arguments import AsJson, RunFolder, Trust
from fleet.commands.ending import mendable
from fleet.machine.launch.launched import inside_launcher, ranks_started
from fleet.report.terminal import terminal_size

if TYPE_CHECKING:
    from fleet.models.predict import AskedPrediction

_Data = Annotated[
    str | None,
    typer.Option(
        help="a data set of the run's spec, or a file or folder; default: the data set that the networks share",
        metavar="NAME|FILE",
        show_default=False,
    ),
]
_Members = Annotated[
    str, typer.Option(help="all, best:K, greedy:K, or names with commas between them", metavar="MEMBERS")
]
_Vote = Annotated[
    Literal["soft", "hard"], typer.Option(help="soft: the mean of probabilities; hard: the shares of answers")
]
_Soup = Annotated[
    Literal["uniform", "greedy"] | None,
    typer.Option(
        help="tell of a network of mean weights, too; uniform: of all; greedy: of those that make it no worse",
        show_default=False,
    ),
]
_Temperature = Annotated[
    bool, typer.Option("--temperature", help="fit temperatures on half of the samples, tell figures on the other half")
]
_Out = Annotated[
    Path | None, typer.Option(help="write all probabilities to this HDF5 file", metavar="FILE", show_default=False)
]
_Which = Annotated[
    Literal["best", "last"], typer.Option("--checkpoint", help="best: the best that is kept, else the last; or last")
]
_Device = Annotated[
    str, typer.Option(help="where the networks are, as torch names it; on several ranks without number")
]
_Ranks = Annotated[
    int | None,
    typer.Option(min=1, help="start so many local MPI ranks, which share the samples out", show_default=False),
]


def predict(
    directory: RunFolder, data: _Data = None, members: _Members = "all", vote: _Vote = "soft", soup: _Soup = None,
    temperature: _Temperature = False, out: _Out = None, checkpoint: _Which = "best", device: _Device = "cpu",
    ranks: _Ranks = None, trust: Trust = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Let a run's networks predict its held-out samples, and tell how good each network and all together are.

    Each sample is read and decoded once, whatever the number of networks. Reads the run only. Takes this process,
    starts --ranks, or joins those that mpirun, srun or jsrun started; the figures are the same. Exit codes: 0, 2 bad
    input, or 70 ranks were lost.
    """
    from fleet.models.predict import AskedPrediction, Combination

    asked = AskedPrediction(members, data, out, checkpoint, device, Combination(vote, soup, temperature), trust)
    if inside_launcher():
        sys.exit(_join(directory, asked, ranks, as_json))
    if ranks is not None and ranks > 1:
        sys.exit(_start(directory, asked, ranks, as_json))
    from fleet.models.predict import MENDABLE, told_of

    with mendable(*MENDABLE):
        told = told_of(directory, asked)
    _print(told, as_json)


def _join(directory: Path, asked: AskedPrediction, ranks: int | None, as_json: bool) -> int:
    """Take part as one of the ranks that a launcher started."""
    started = ranks_started()
    with mendable():
        if ranks is not None and started not in (None, ranks):
            raise ValueError(f"--ranks {ranks}: the launcher has started {started}; leave --ranks out")
    from fleet.models.predict_ranks import predict_on_rank

    return predict_on_rank(directory, asked, partial(_print, as_json=as_json))


def _start(directory: Path, asked: AskedPrediction, ranks: int, as_json: bool) -> int:
    from fleet.machine.launch.local_launch import LaunchError, LocalLaunch

    arguments = asked.arguments(directory) + (["--json"] if as_json else [])
    with mendable(LaunchError):
        launch = LocalLaunch(ranks, arguments, terminal_size())
    return launch.run()


def _print(told: dict[str, Any], as_json: bool) -> None:
    from rich.console import Console

    from fleet.commands.predict_table import figures_table, lines, scaled_table
    from fleet.journal.whole_files import strict_json
    from fleet.session.console import rank_console

    if as_json:
        print(strict_json(told, indent=1))
        return
    console = rank_console() if inside_launcher() else Console()
    if told["labelled"]:
        console.print(figures_table(told))
    for line in lines(told):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    if "scaled" in told:
        console.print(scaled_table(told))
