"""How a command ends where it cannot go on: one line on standard error, and an exit code."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from fleet.machine.launch.exit_codes import BAD_INPUT, FAILED
from fleet.machine.raised_in import raised_in
from fleet.machine.standard_error import tell


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


def failed(error: Exception, where: str = "") -> int:
    """Tell of an error, and in which lines of the person's code it was raised; return the exit code.

    Where it was raised in none of them it is one of fleet's, and its whole traceback is told. `where`: " on rank 1".
    """
    theirs = raised_in(error)
    if theirs:
        said = "".join(traceback.format_exception_only(error)).rstrip()
        tell(f"the job failed{where}: {said}\nit was raised in\n{theirs}")
    else:
        tell(f"the job failed{where}:\n" + "".join(traceback.format_exception(error)))
    return FAILED
