"""What ends a run that is at fault itself no more than its user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fleet.machine.launch.launched import FAILED, LOST


class CannotGoOnError(RuntimeError):
    """The run cannot go on, through no fault of the program; the text is all that a person needs.

    Attributes:
        code: what the run ends with.
    """

    code = FAILED


class FailedJobsError(CannotGoOnError):
    """Jobs have failed by what all ranks have a part in; the same command goes on without them.

    Attributes:
        jobs: theirs.
    """

    code = LOST

    def __init__(self, text: str, *jobs: str) -> None:
        super().__init__(text)
        self.jobs = jobs


class SilentGroupError(FailedJobsError):
    """Groups have said nothing for too long."""


class TornDataError(CannotGoOnError):
    """A sample of a data set cannot be made, and none may take its place.

    Attributes:
        data: the data set. lines: those of sources and transforms that raised, if any did.
    """

    def __init__(self, data: str, text: str, lines: str = "") -> None:
        super().__init__(text)
        self.data, self.lines = data, lines


class TooFewDevicesError(CannotGoOnError):
    """So many devices are lost that no job can have those which it needs; a new start has them all again."""

    code = LOST


class StorageError(CannotGoOnError):
    """A file of the run cannot be written or read, on which the run depends."""


@contextmanager
def storage() -> Iterator[None]:
    """Tell of the system's errors in people's words.

    Raises:
        StorageError: it names the file and what the system says of it.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:  # a time-out of our own
            raise
        raise StorageError(f"{error.filename or 'a file of the run'}: {error.strerror}") from error
