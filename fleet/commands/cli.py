"""The whole command line, with every command loaded."""

from __future__ import annotations

from typing import Annotated

import typer

import fleet
from fleet.commands.entry import COMMANDS, command_of

app = typer.Typer(
    help="Train an ensemble of different networks in one MPI job, each with the bits it would have had alone.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="print the version")] = False) -> None:
    if version:
        print(fleet.__version__)
        raise typer.Exit()


for _name in COMMANDS:
    app.command()(command_of(_name))
