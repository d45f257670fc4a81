"""Imports that nobody looks through for garbage meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Let nobody look for garbage while something is imported. Later collections leave out what is there by then.

    What an import makes stays. To look through it again and again takes a fifth of the seconds in which torch is
    imported, to do so once behind it a fifth of a second, and at the end of a rank a second.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # before the first collection, which comes with the next object
        if collects:
            gc.enable()
