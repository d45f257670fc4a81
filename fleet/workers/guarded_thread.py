"""A thread whose error is not lost."""

from __future__ import annotations

import threading
from collections.abc import Callable


class GuardedThread(threading.Thread):
    """`failure` holds the error that ended it, and `on_failure` is called."""

    def __init__(self, work: Callable[[], object], name: str, on_failure: Callable[[], None] = lambda: None) -> None:
        super().__init__(name=name, daemon=True)
        self.failure: BaseException | None = None
        self._work, self._on_failure = work, on_failure
        self.start()

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.failure = error
            self._on_failure()
