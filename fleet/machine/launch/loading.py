"""Imports that nobody looks through for garbage meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Let what is imported inside be imported without collections of garbage; they go on behind.

    What an import makes stays. To look through it again and again takes a fifth of the seconds in which torch is
    imported.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
