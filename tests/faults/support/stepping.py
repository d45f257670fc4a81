"""Steps through what a Python process does, and in one phase signals the command that a person had started.

It is copied to be a `sitecustomize`. STEP_ROLE says whose phases count: "launcher", the command's itself, or those of
the rank with that number. A step is an audit event: an import, a file that is opened, a process that is started; the
phase is the innermost function of ours that it happens in. STEP_LOG: a folder for the list of phases; STEP_PHASE,
STEP_SIGNAL: the phase at whose first step, and what, to signal.
"""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any, TextIO

OURS = ("fleet", "preprocess", "trainers")
RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")


class Stepper:
    """Notices when this process comes into a phase for the first time."""

    def __init__(self, log: TextIO | None, phase: str, number: int, command: int) -> None:
        self._log, self._phase, self._number, self._command = log, phase, number, command
        self._known: set[str] = set()
        self._inside = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._inside or event.startswith(("object.", "sys.", "marshal.", "code.", "builtins.")):
            return
        self._inside = True
        phase = _phase(sys._getframe())
        if phase not in self._known:
            self._known.add(phase)
            self._enter(phase)
        self._inside = False

    def _enter(self, phase: str) -> None:
        if self._log is not None:
            print(phase, file=self._log, flush=True)
        if phase == self._phase:
            os.kill(self._command, self._number)


def _phase(frame: FrameType | None) -> str:
    """The innermost function of ours that this happens in; "python" where there is none."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] in OURS and frame.f_code.co_name != "<module>":
            return f"{name}.{frame.f_code.co_name}"
        frame = frame.f_back
    return "python"


def _begin() -> None:
    command = int(os.environ.setdefault("STEP_COMMAND", str(os.getpid())))
    rank = next((os.environ[name] for name in RANKS if name in os.environ), None)
    role = "launcher" if command == os.getpid() else rank
    if role is None or role != os.environ.get("STEP_ROLE"):
        return
    path = os.path.join(os.environ["STEP_LOG"], role) if "STEP_LOG" in os.environ else None
    log = open(path, "a") if path else None  # noqa: SIM115 it is open until the process ends
    phase, number = os.environ.get("STEP_PHASE", ""), int(os.environ.get("STEP_SIGNAL", "0"))
    sys.addaudithook(Stepper(log, phase, number, command))


if __name__ == "sitecustomize":
    _begin()
