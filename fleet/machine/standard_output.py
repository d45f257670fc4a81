"""Standard output is a command's answer, which programs may read: what other code prints meanwhile goes elsewhere."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_OUTPUT, _ERROR = 1, 2


@contextmanager
def others_on_standard_error() -> Iterator[None]:
    """Send to standard error what is printed inside, by libraries in C and by processes that begin there, too.

    HiGHS prints lines that no option turns off (HiGHS.jl's issue 312), and a person's modules may print as well. One
    thread at a time is inside.
    """
    kept = _kept()
    if kept is None:
        yield
        return
    os.dup2(_ERROR, _OUTPUT)
    try:
        yield
    finally:
        sys.stdout.flush()
        ctypes.CDLL(None).fflush(None)  # what C keeps in its buffers
        os.dup2(kept, _OUTPUT)
        os.close(kept)


def _kept() -> int | None:
    """Another descriptor of standard output, with all that was printed written; None: it is closed."""
    try:
        sys.stdout.flush()
        return os.dup(_OUTPUT)
    except (AttributeError, OSError):
        return None
