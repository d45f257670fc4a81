"""Where the command `fleet` begins, each command loaded without the others, and how it ends where it cannot go on."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from fleet.machine.launch.launched import BAD_INPUT, loading
from fleet.machine.standard_streams import tell

COMMANDS: Mapping[str, str] = {
    "init": "init",
    "run": "run",
    "profile": "run",
    "plan": "plan",
    "report": "results",
    "status": "status",
    "stop": "steering",
    "change": "steering",
    "track": "results",
    "add": "steering",
    "best": "results",
    "predict": "predict",
    "export": "results",
    "extend": "run",
    "replay": "train",
    "train": "train",
    "compare": "compare",
    "trace-tensors": "train",
    "convert": "convert",
    "doctor": "doctor",
    "simulate": "simulate",
    "submit": "submit",
}
"""Command -> the module of this room in which a function has its name. `status` and `stop` load neither torch nor MPI
nor the reading of specs."""


def main() -> None:
    """Entry point of the `fleet` command."""
    with files_told():
        _run()


def command_of(name: str) -> Any:
    """Return the function that a command calls."""
    module = importlib.import_module(f"fleet.commands.{COMMANDS[name]}")
    return getattr(module, name.replace("-", "_"))


def _run() -> None:
    if _answered_at_once(sys.argv[1:]):
        return
    named = next(iter(sys.argv[1:]), "")
    if named not in COMMANDS:
        importlib.import_module("fleet.commands.cli").app()  # which loads all, for its list of them
        return
    import typer

    with loading():
        command = command_of(named)
    app = typer.Typer(pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]})
    app.callback()(_group)
    app.command(named)(command)
    app(prog_name="fleet")


def _answered_at_once(words: list[str]) -> bool:
    """Answer `fleet status DIR [--json] [--all]` without a parser of command lines; whether the words are these."""
    others = [word for word in words[1:] if word not in ("--json", "--all")]
    if words[:1] != ["status"] or len(others) != 1 or others[0].startswith("-"):
        return False
    status = importlib.import_module("fleet.commands.status_answer")
    status.answer(Path(others[0]), "--json" in words, "--all" in words)
    return True


def _group() -> None:
    """Train an ensemble of different networks in one MPI job, each with the bits it would have had alone."""


def end(code: int, text: str) -> NoReturn:
    """Tell why, and end the program with `code`."""
    tell(text)
    sys.exit(code)


@contextmanager
def mendable(*kinds: type[Exception]) -> Iterator[None]:
    """End the program where an error of these kinds leaves the context: a person can mend it, its text says how.

    Without kinds it is every ValueError; other errors pass.
    """
    caught = kinds or (ValueError,)
    try:
        yield
    except caught as error:
        end(BAD_INPUT, str(error))


@contextmanager
def files_told() -> Iterator[None]:
    """End the program where a file is not what it must be, is too large, or cannot be had: a person can mend that.

    Commands tell most of that themselves, each with its mend; this is for all other files.
    """
    try:
        yield
    except OSError as error:
        from preprocess.files.memory import NeedsTooMuchMemory
        from preprocess.files.reading import NotAFile, TooLarge
        from preprocess.files.writing import LaidByOthers

        if isinstance(error, (NotAFile, TooLarge, LaidByOthers, NeedsTooMuchMemory)):
            end(BAD_INPUT, f"{error.filename} {error.strerror}")
        if error.filename is not None and error.strerror is not None:
            end(BAD_INPUT, f"{error.filename}: {error.strerror}")
        raise
