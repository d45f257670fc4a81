"""The command line: every command has a file of its own in this room."""

from __future__ import annotations

from typing import Annotated

import typer

import fleet
from fleet.commands.add import add
from fleet.commands.best import best
from fleet.commands.change import change
from fleet.commands.compare import compare
from fleet.commands.convert import convert
from fleet.commands.doctor import doctor
from fleet.commands.export import export
from fleet.commands.extend import extend
from fleet.commands.init import init
from fleet.commands.plan import plan
from fleet.commands.predict import predict
from fleet.commands.profile import profile
from fleet.commands.replay import replay
from fleet.commands.report import report
from fleet.commands.run import run
from fleet.commands.simulate import simulate
from fleet.commands.status import status
from fleet.commands.stop import stop
from fleet.commands.submit import submit
from fleet.commands.trace import trace_tensors
from fleet.commands.track import track
from fleet.commands.train import train

app = typer.Typer(
    help="Train an ensemble of different networks in one MPI job, each with the bits it would have had alone.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Entry point of the `fleet` command."""
    app()


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="print the version")] = False) -> None:
    if version:
        print(fleet.__version__)
        raise typer.Exit()


for _command in (
    init, run, profile, plan, report, status, stop, change, track, add, best, predict, export, extend, replay, train,
    compare, trace_tensors, convert, doctor, simulate, submit,
):  # fmt: skip
    app.command()(_command)
