"""How a command ends where it cannot go on: one line on standard error, and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from fleet.machine.launch.launched import BAD_INPUT
from fleet.machine.standard_streams import tell


def end(code: int, text: str) -> NoReturn:
    """Tell why, and end the program with `code`."""
    tell(text)
    sys.exit(code)


@contextmanager
def mendable(*kinds: type[Exception]) -> Iterator[None]:
    """End the program where an error of these kinds leaves the context: a person can mend it, its text says how.

    Without kinds it is every ValueError; other errors pass.
    """
    caught = kinds or (ValueError,)
    try:
        yield
    except caught as error:
        end(BAD_INPUT, str(error))


@contextmanager
def files_told() -> Iterator[None]:
    """End the program where a file is not what it must be, is too large, or cannot be had: a person can mend that.

    Commands tell most of that themselves, each with its mend; this is for all other files.
    """
    try:
        yield
    except OSError as error:
        from preprocess.files.memory import NeedsTooMuchMemory
        from preprocess.files.reading import NotAFile, TooLarge
        from preprocess.files.writing import LaidByOthers

        if isinstance(error, (NotAFile, TooLarge, LaidByOthers, NeedsTooMuchMemory)):
            end(BAD_INPUT, f"{error.filename} {error.strerror}")
        if error.filename is not None and error.strerror is not None:
            end(BAD_INPUT, f"{error.filename}: {error.strerror}")
        raise
