"""A network's code may not end the process that runs it: others are trained there too."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def no_exit() -> Iterator[None]:
    """Let `os._exit`, called in this thread inside the block, raise SystemExit instead; what is forked may end."""
    end, process, thread = os._exit, os.getpid(), threading.get_ident()

    def refuse(status: int) -> NoReturn:
        if (os.getpid(), threading.get_ident()) != (process, thread):
            end(status)
        raise SystemExit(f"its code called os._exit({status})")

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = end
