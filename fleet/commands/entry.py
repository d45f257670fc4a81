"""Where the command `fleet` begins: commands that must answer at once are loaded without the others."""

from __future__ import annotations

import importlib
import sys

QUICK = ("status", "stop")
"""Commands whose modules load neither torch nor MPI nor the reading of specs."""


def main() -> None:
    """Entry point of the `fleet` command."""
    named = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    if named in QUICK:
        import typer

        command = importlib.import_module(f"fleet.commands.{named}")
        app = typer.Typer(pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]})
        app.callback()(_group)
        app.command(named)(getattr(command, named))
        app(prog_name="fleet")
    else:
        from fleet.commands.cli import main as whole

        whole()


def _group() -> None:
    """Train an ensemble of different networks in one MPI job, each with the bits it would have had alone."""
