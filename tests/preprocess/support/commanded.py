"""Loaders in processes of their own, that a test tells step by step what to do."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.warm.starting import python_path

JOB = Path(__file__).resolve().parents[1] / "jobs" / "loader_on_command.py"
ANSWER_SECONDS = 60


class CommandedLoader:
    """One process with one SharedLoader.

    Attributes:
        process: what was started.
        pid: of the process that has the loader, once it is ready.
    """

    def __init__(self, arguments: dict[str, Any], folder: Path) -> None:
        self._heard = b""
        environment = os.environ | {"PYTHONPATH": python_path(folder), "XDG_RUNTIME_DIR": str(folder)}
        command = [sys.executable, str(JOB), json.dumps(arguments)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )

    def ready(self) -> CommandedLoader:
        """Wait until the loader has found the service."""
        self.pid = int(self._line())
        return self

    def tell(self, command: str) -> None:
        """Send a command without waiting for the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """Return the answer to the oldest command that was not answered."""
        return json.loads(self._line())

    def ask(self, command: str) -> Any:
        """Send a command and return its answer."""
        self.tell(command)
        return self.answer()

    def kill(self) -> None:
        """Kill it with signal 9."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait(10)

    def end(self) -> str:
        """Let it end, by itself if it can, and return what it said on standard error."""
        try:
            _, errors = self.process.communicate(timeout=10)
        except (subprocess.TimeoutExpired, ValueError):
            self.process.kill()
            _, errors = self.process.communicate()
        return errors

    def _line(self) -> str:
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()  # past the buffers of Python, so that poll sees what there is
        while b"\n" not in self._heard:
            waiting = select.poll()
            waiting.register(descriptor, select.POLLIN)
            assert waiting.poll(ANSWER_SECONDS * 1000), "the loader did not answer"
            part = os.read(descriptor, 2**16)
            assert part, f"the loader has ended:\n{self.end()}"
            self._heard += part
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode()


def service_of(folder: Path) -> psutil.Process | None:
    """Return the service that was started in a runtime folder, if it runs."""
    for process in psutil.process_iter():
        if _writes_in(process.pid, folder):
            with suppress(psutil.Error):
                if not _writes_in(process.ppid(), folder):
                    return process
    return None


def _writes_in(process: int, folder: Path) -> bool:
    """Whether its standard error is a file there: the log of a service, which its preprocessors have too."""
    with suppress(OSError):
        return Path(os.readlink(f"/proc/{process}/fd/2")).is_relative_to(folder)
    return False


def wait_for_end_of_service(folder: Path) -> None:
    """Wait, a while, until the service of a runtime folder and its processes have ended, if one runs."""
    service = service_of(folder)
    if service is None:
        return
    try:
        processes = [service, *service.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    psutil.wait_procs(processes, timeout=10)
