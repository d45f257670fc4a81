"""Sees to local ranks from outside: finds those that are lost before MPI can tell of them, and ends all."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil

from fleet.machine.launch.launched import BEGUN, UP

FEWER_SECONDS = 5.0  # of fewer ranks than there should be: where all fail alike, the others end within that, too
_END_SECONDS = 5.0


class RankWatch:
    """Looks at the processes of one launch now and then.

    Args:
        launcher: its children are the ranks.
        ranks: how many there shall be.
        folder: the launch's folder, where ranks say that they are up.
    """

    def __init__(self, launcher: subprocess.Popen[bytes], ranks: int, folder: Path) -> None:
        self._launcher, self._ranks, self._folder = launcher, ranks, folder
        self._seen: set[psutil.Process] = set()
        self._fewer_since: float | None = None
        self._up = False

    def lost_at_start(self) -> bool:
        """Whether a rank was lost while MPI still starts: the others would wait for it for ever."""
        if self._up:
            return False
        self._up = sum(1 for _ in self._folder.glob(f"{UP}*")) >= self._ranks
        living = set(self._children(recursive=False))
        self._seen |= living
        begun = (self._folder / BEGUN).exists()  # else one may be missing that was lost before it was seen
        if self._up or not (self._seen - living or begun and len(living) < self._ranks):
            self._fewer_since = None
            return False
        self._fewer_since = self._fewer_since or time.monotonic()
        return time.monotonic() - self._fewer_since > FEWER_SECONDS

    def end(self) -> None:
        """End the launcher, if it lives, and all ranks, now; also those that outlive it."""
        processes = {*self._seen, *self._children(recursive=True)}
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=_END_SECONDS)
        try:
            self._launcher.wait(timeout=_END_SECONDS)  # it takes its files away
        except subprocess.TimeoutExpired:
            self._launcher.kill()

    def _children(self, recursive: bool) -> list[psutil.Process]:
        try:
            found = psutil.Process(self._launcher.pid).children(recursive=recursive)
        except psutil.NoSuchProcess:
            return []
        return [process for process in found if _lives(process)]


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False
