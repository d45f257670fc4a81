"""Whether anybody writes a run directory now, as far as that can be seen without waiting."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fleet.journal.lock import NAME, SILENT_SECONDS, Holder
from fleet.report.status.standing import Writer


def writer_of(directory: Path, clock: Callable[[], float] = time.time) -> tuple[Writer, float]:
    """Who writes there, and the second since 1970 at which that process began, 0 if there is none.

    The lock's record names a process, which can be seen on its own node. On another node, such as a login node, the
    time at which its record was written last tells whether it lives: it is renewed every few seconds.
    """
    path = directory / NAME
    holder = Holder.read(path)
    if holder is None:
        return Writer("", False, None), 0.0
    silent = max(0.0, clock() - path.stat().st_mtime)
    lives = holder.lives()
    if lives is None and silent < SILENT_SECONDS:
        lives = True
    return Writer(str(holder), lives, silent), float(holder.started)
