"""`fleet predict`: several trained networks answer together, and how good each and all are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fleet.commands.arguments import AsJson, RunFolder, Trust
from fleet.commands.entry import mendable
from fleet.machine.launch.launched import inside_launcher, ranks_started
from fleet.report import wording
from fleet.report.terminal import plain_table, terminal_size

if TYPE_CHECKING:
    from rich.table import Table

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
    directory: RunFolder,
    data: _Data = None,
    members: _Members = "all",
    vote: _Vote = "soft",
    soup: _Soup = None,
    temperature: _Temperature = False,
    out: _Out = None,
    checkpoint: _Which = "best",
    device: _Device = "cpu",
    ranks: _Ranks = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
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


COLUMNS = ("accuracy", "nll", "brier", "ece")
SCALED = ("temperature", "nll", "brier", "ece")
TOGETHER, SOUP = "all together", "soup"
_MOST_NAMES = 8


def figures_table(told: dict[str, Any]) -> Table:
    """One row for each network, one for all together, and one for a soup.

    Args:
        told: see `fleet.models.predict`.
    """
    from rich.text import Text

    made = _empty("weight", *COLUMNS)
    for name, figures in told["members"].items():
        made.add_row(Text(wording.printable(name)), f"{told['weights'][name]:.3f}", *_cells(figures, COLUMNS))
    made.add_row(TOGETHER, "", *_cells(told["ensemble"], COLUMNS), style="bold")
    if "soup" in told:
        made.add_row(SOUP, "", *_cells(told["soup"], COLUMNS), style="bold")
    return made


def scaled_table(told: dict[str, Any]) -> Table:
    """Make a table of the same rows with temperatures, and the figures that these change."""
    from rich.text import Text

    made, scaled = _empty(*SCALED), told["scaled"]
    for name, figures in scaled["members"].items():
        made.add_row(Text(wording.printable(name)), *_cells(figures, SCALED))
    for row, key in ((TOGETHER, "ensemble"), (SOUP, "soup")):
        if key in scaled:
            made.add_row(row, *_cells(scaled[key], SCALED), style="bold")
    return made


def _empty(*titles: str) -> Table:
    made = plain_table()
    made.add_column("network", no_wrap=True)
    for title in titles:
        made.add_column(title, justify="right", no_wrap=True)
    return made


def _cells(figures: dict[str, Any], columns: tuple[str, ...]) -> list[str]:
    return [f"{figures[name]:.4f}" for name in columns]


def lines(told: dict[str, Any]) -> Iterator[str]:
    """Yield what is said below the table."""
    figures, samples = told["ensemble"], told["samples"]
    done = "temperatures were fitted" if "scaled" in told else "networks were chosen"
    half = f"; {done} on the other {told['chosen_on']:,}" if "chosen_on" in told else ""
    kind = "held-out sample" if told["labelled"] else "sample without labels"
    count = f"{samples:,} {kind if samples == 1 else kind.replace('sample', 'samples')}"
    yield f"disagreement {figures['disagreement']:.4f}, diversity {figures['diversity']:.4f}, on {count}{half}"
    if SOUP in told:
        soup = told[SOUP]
        names = [wording.printable(name) for name in soup["members"]]
        listed = ", ".join(names[:_MOST_NAMES]) + (" ..." if len(names) > _MOST_NAMES else "")
        buffers = len(soup["averaged_buffers"])
        more = f", and of {buffers} buffers such as running statistics, which were not measured anew" if buffers else ""
        yield f"soup: the mean of the weights of {listed}{more}"
    if "scaled" in told:
        yield "with temperatures, which leave the answers as they are:"
