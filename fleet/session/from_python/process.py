"""The command `fleet`, started by a program, which sees its output and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from fleet.machine.launch.exit_codes import BAD_INPUT, DONE, FAILED, STOPPED
from fleet.models.errors import RunError, RunLost

_POLL_SECONDS = 0.1
_TAIL = 20  # lines


@dataclass
class Process:
    """A command that goes on whatever becomes of this program: what it writes goes into files.

    Args:
        child: the command.
        output, errors: what it writes.
    """

    child: subprocess.Popen[bytes]
    output: IO[str]
    errors: IO[str]
    _heard: list[str] = field(default_factory=list)

    @classmethod
    def start(cls, command: Sequence[str]) -> Process:
        """Start a command in a session of its own: a notebook's interrupts do not reach it."""
        files = []
        with tempfile.TemporaryDirectory(prefix="fleet-run-") as folder:
            for name in ("output", "errors"):
                path = Path(folder) / name
                files.append((open(path, "wb"), open(path, errors="replace")))  # noqa: SIM115 - live as long as it
            (output, read_output), (errors, read_errors) = files
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True,
                env={**os.environ, "PYTHONPATH": _path()},
            )  # fmt: skip
            output.close()
            errors.close()
        return cls(child, read_output, read_errors)

    def wait(self, timeout: float | None = None) -> bool:
        """Show what it writes until it ends; whether it has ended within the time, seconds.

        Raises:
            KeyboardInterrupt: somebody has interrupted this program; the command has ended in good order.
            RunError: it says what a person can mend.
            RunLost: it ended otherwise than a run ends.
        """
        try:
            ended = self._followed(timeout)
        except KeyboardInterrupt:
            self.child.send_signal(signal.SIGINT)
            self._followed(None)
            raise
        if ended:
            self._judge()
        return ended

    def _followed(self, timeout: float | None) -> bool:
        left = timeout
        while self.child.poll() is None:
            self._show()
            if left is not None and left <= 0:
                return False
            pause = _POLL_SECONDS if left is None else min(_POLL_SECONDS, left)
            try:
                self.child.wait(pause)
            except subprocess.TimeoutExpired:
                left = None if left is None else left - pause
        self._show()
        return True

    def _show(self) -> None:
        print(self.output.read(), end="", flush=True)
        said = self.errors.read()
        self._heard += said.splitlines()
        print(said, end="", file=sys.stderr, flush=True)

    def _judge(self) -> None:
        code = self.child.returncode
        if code in (DONE, FAILED, STOPPED):
            return
        words = [line.removeprefix("fleet: ") for line in self._words()]
        text = "\n".join(words) or f"the command ended with code {code}"
        raise RunError(text) if code == BAD_INPUT else RunLost(text)

    def _words(self) -> list[str]:
        """What fleet itself said of the end, or else the last lines that anybody wrote."""
        begin = next((number for number, line in enumerate(self._heard) if line.startswith("fleet: ")), None)
        return self._heard[begin:] if begin is not None else self._heard[-_TAIL:]


def _path() -> str:
    """Where the command finds the fleet that this program has found, and what else it was told."""
    own = str(Path(__file__).resolve().parents[3])
    return os.pathsep.join([own, *filter(None, [os.environ.get("PYTHONPATH")])])
