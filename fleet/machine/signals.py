"""A signal sets a flag and nothing else; the work happens at the next step boundary."""

from __future__ import annotations

import signal
from types import FrameType

from preprocess.files.modules import let_forks_end

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
"""SIGHUP comes when a terminal closes, as when a connection is lost."""


def stopping() -> list[signal.Signals]:
    """Return the signals that stop this process: not SIGHUP where it is ignored, as below nohup."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in STOPPING if not (ignored and number == signal.SIGHUP)]


class StopFlag:
    """Raised by SIGTERM, SIGINT, SIGUSR1 or SIGHUP."""

    def __init__(self) -> None:
        self.raised = False

    def install(self) -> None:
        """Take the signals over; from now on they only raise the flag, but in processes that are forked."""
        numbers = stopping()
        for number in numbers:
            signal.signal(number, self._raise)
        let_forks_end(numbers)

    def __call__(self) -> bool:
        return self.raised

    def set(self) -> None:
        """Raise it without a signal."""
        self.raised = True

    def _raise(self, number: int, frame: FrameType | None) -> None:
        self.set()
