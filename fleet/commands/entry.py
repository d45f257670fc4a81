"""Where the command `fleet` begins: commands that must answer at once are loaded without the others."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

QUICK = ("status", "stop")
"""Commands whose modules load neither torch nor MPI nor the reading of specs."""


def main() -> None:
    """Entry point of the `fleet` command."""
    if _told(sys.argv[1:]):
        return
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


def _told(words: list[str]) -> bool:
    """Answer `fleet status DIR [--json] [--all]` at once; whether the words are these."""
    others = [word for word in words[1:] if word not in ("--json", "--all")]
    if words[:1] != ["status"] or len(others) != 1 or others[0].startswith("-"):
        return False
    from fleet.commands.status_answer import answer

    answer(Path(others[0]), "--json" in words, "--all" in words)
    return True


def _group() -> None:
    """Train an ensemble of different networks in one MPI job, each with the bits it would have had alone."""
