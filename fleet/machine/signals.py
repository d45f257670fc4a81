"""A signal sets a flag and nothing else; the work happens at the next step boundary."""

from __future__ import annotations

import signal
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class StopFlag:
    """Raised by SIGTERM, SIGINT or SIGUSR1."""

    def __init__(self) -> None:
        self.raised = False

    def install(self) -> None:
        """Take the three signals over; from now on they only raise the flag."""
        for number in STOPPING:
            signal.signal(number, self._raise)

    def __call__(self) -> bool:
        return self.raised

    def _raise(self, number: int, frame: FrameType | None) -> None:
        self.raised = True
