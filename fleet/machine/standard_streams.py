"""Standard error for fleet's own words, and standard output for a command's answer alone, which programs may read."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TextIO


def tell(text: str, end: str = "\n") -> None:
    """Print `text` on standard error, as fleet's own word; not where nobody can read it any more.

    It has no control characters but line feeds: names that stand in files steer no terminal.
    """
    text = "".join(character if character.isprintable() or character == "\n" else " " for character in text)
    with suppress(OSError):
        print(f"fleet: {text}", file=sys.stderr, end=end, flush=True)


_OUTPUT, _ERROR = 1, 2


@contextmanager
def others_on_standard_error() -> Iterator[None]:
    """Send to standard error what is printed inside, by libraries in C and by processes that begin there, too.

    HiGHS 1.12 prints a line that no option turns off (its issue 2783), and a person's modules may print as well. One
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
        import ctypes  # here: whoever only tells something does not need it

        ctypes.CDLL(None).fflush(None)  # what C keeps in its buffers
        os.dup2(kept, _OUTPUT)
        os.close(kept)


@contextmanager
def python_alone_on_standard_output() -> Iterator[None]:
    """Leave standard output to what Python prints inside, in any thread; what else is printed goes to standard error.

    For a rank, whose lines people read as its threads write them while a policy may have HiGHS solve its program.
    """
    own = _python_output()
    if own is None:
        with others_on_standard_error():
            yield
        return
    with own, others_on_standard_error(), redirect_stdout(own):
        yield


def _python_output() -> TextIO | None:
    """Return what Python prints on, under another descriptor; None: that is not standard output, or it is closed."""
    try:
        if sys.stdout.fileno() != _OUTPUT:
            return None
    except (AttributeError, OSError, ValueError):
        return None
    kept = _kept()
    return None if kept is None else os.fdopen(kept, "w", 1, sys.stdout.encoding, sys.stdout.errors)


def _kept() -> int | None:
    """Another descriptor of standard output, with all that was printed written; None: it is closed."""
    try:
        sys.stdout.flush()
        return os.dup(_OUTPUT)
    except (AttributeError, OSError):
        return None
