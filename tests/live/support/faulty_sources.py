"""Sources of pictures with faults of their own; copied beside a spec, like parts.py."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from pathlib import Path
from typing import Any

from tests.live.support import parts


class Stuck(parts.Pictures):
    """Never comes back.

    Args:
        where: "open", "len" or "read".
        rank: the only one that it happens on.
        alone: nothing else of the process goes on meanwhile: C code that keeps Python's lock.
    """

    def __init__(self, where: str, rank: int, alone: bool = False) -> None:
        super().__init__(train=True)
        self._where, self._rank, self._alone = where, rank, alone
        self._never("open")

    def __len__(self) -> int:
        self._never("len")
        return super().__len__()

    def __getitem__(self, index: int) -> Any:
        if index:  # the first is looked at when the data set is opened
            self._never("read")
        return super().__getitem__(index)

    def _never(self, where: str) -> None:
        if where == self._where and parts.own_rank() == self._rank:
            if self._alone:
                ctypes.PyDLL(None).sleep(1_000_000)
            threading.Event().wait()


class Deadly(parts.Pictures):
    """The process of one rank is killed at a picture, as by a kernel that is out of memory; until a file is there."""

    def __init__(self, rank: int, mended: str) -> None:
        super().__init__(train=False)
        self._rank, self._mended = rank, Path(mended)

    def __getitem__(self, index: int) -> Any:
        if index == 20 and parts.own_rank() == self._rank and not self._mended.exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Refusing(parts.Pictures):
    """Raises where it is told to: "open" or "len"."""

    def __init__(self, where: str) -> None:
        super().__init__(train=True)
        self._where = where
        if where == "open":
            raise OSError("the archive is no archive")

    def __len__(self) -> int:
        if self._where == "len":
            raise OSError("the index is torn")
        return super().__len__()
