"""Runs `fleet ARGUMENTS` in forks of one process that has imported it, and measures each: exit code, seconds, memory.

As a program it is that process: it reads a line of JSON for each command, and answers with one.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: its exit code; negative: the signal that ended it; None: it was ended after `Forks.LIMIT` seconds.
        seconds: that it computed, with its children.
        megabytes: the most memory that it, or one of its children, had at once.
        said: what it printed.
    """

    code: int | None
    seconds: float
    megabytes: int
    said: str


class Forks:
    """The process that forks, seen from a test."""

    LIMIT = 60.0

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def fleet(self, arguments: Sequence[str], folder: Path, cold: bool = False) -> Ended:
        """Run a command in a folder.

        Args:
            cold: by a new Python, for what matters when it is imported.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([list(arguments), str(folder), self.LIMIT, cold]) + "\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))


@contextmanager
def forks() -> Iterator[Forks]:
    """Start the process that forks; it ends with the block."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    environment.pop("FLEET_WARM", None)  # a process that another forked would count that one's memory as its own
    command = [sys.executable, "-m", "tests.trust.support.forks"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Forks(process)
        finally:
            process.kill()


def serve() -> None:
    """Answer commands until there are no more."""
    _import_all()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(_forked(*json.loads(line))) + "\n")


def _import_all() -> None:
    """Import what commands use, also what they import when they first need it."""
    for name in ("compare", "convert", "predict", "results", "run", "simulate", "submit"):
        importlib.import_module(f"fleet.commands.{name}")
    from tests.trust.support.good import write_source

    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nothing, redirect_stdout(nothing):
        os.chdir(folder)
        write_source("image_folder", Path(folder))
        sys.argv = ["fleet", "plan", "spec.yaml"]
        with suppress(SystemExit):
            importlib.import_module("fleet.commands.entry").main()
        os.chdir(here)


def _forked(arguments: list[str], folder: str, limit: float, cold: bool) -> dict[str, Any]:
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            _run(arguments, folder, output.fileno(), cold)
        status, used = _end_of(child, time.monotonic() + limit)
        output.seek(0)
        return {
            "code": None if status is None else os.waitstatus_to_exitcode(status),
            "seconds": used.ru_utime + used.ru_stime,
            "megabytes": used.ru_maxrss // 1024,
            "said": output.read().decode(errors="replace"),
        }


def _end_of(child: int, deadline: float) -> tuple[int | None, resource.struct_rusage]:
    """Wait for a child and end what it left; its status (None: it had to be ended), and what it used."""
    ready = os.pidfd_open(child)
    try:
        late = not select.select([ready], [], [], max(0.0, deadline - time.monotonic()))[0]
    finally:
        os.close(ready)
    if late:
        os.killpg(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    return (None if late else status), used


def _run(arguments: list[str], folder: str, output: int, cold: bool) -> None:
    os.setsid()
    os.chdir(folder)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for given, wanted in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(given, wanted)
    if cold:
        os.execv(sys.executable, [sys.executable, "-m", "fleet", *arguments])
    sys.argv = ["fleet", *arguments]
    code = 0
    try:
        from fleet.commands.entry import main

        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve()
