"""Where the command `fleet` begins: each command is loaded without the others, so that it answers soon."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from fleet.commands.ending import files_told
from fleet.machine.launch.launched import loading

ALONE = (
    "add", "best", "change", "compare", "convert", "doctor", "export", "extend", "init", "plan", "predict", "profile",
    "replay", "report", "run", "simulate", "status", "stop", "submit", "track", "train",
)  # fmt: skip
"""Commands that are the functions of their name in the modules of their name; those of `status` and `stop` load neither
torch nor MPI nor the reading of specs."""


def main() -> None:
    """Entry point of the `fleet` command."""
    with files_told():
        _run()


def _run() -> None:
    if _told(sys.argv[1:]):
        return
    named = next(iter(sys.argv[1:]), "")
    if named in ALONE:
        import typer

        with loading():
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
