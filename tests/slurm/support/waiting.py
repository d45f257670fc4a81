"""Waiting for what a job does, with a bound."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 120.0


def wait_for(holds: Callable[[], bool], what: Callable[[], str]) -> None:
    """Poll until `holds()`; a failure after PATIENCE seconds, with what was waited for and how it stands."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"waited {PATIENCE:g} s for {what()}"
        time.sleep(0.05)
