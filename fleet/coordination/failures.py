"""What ends a run that is at fault itself no more than its user."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from fleet.machine.cluster_map import COORDINATOR
from fleet.machine.launch.launched import ABORTED, FAILED, LOST, leave_first
from fleet.machine.standard_streams import tell

if TYPE_CHECKING:
    from mpi4py import MPI


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


ENABLED = "OMPI_MCA_mpi_ft_enable"  # set for each rank by mpiexec --with-ft ulfm


class RanksLost(CannotGoOnError):
    """Ranks are gone without which the others cannot go on; the same command goes on from the checkpoints."""

    code = LOST


class RunIsEnded(RanksLost):
    """Another rank ends the run; it has said why."""


def survives_losses(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether MPI lets the other ranks live when one is lost."""
    return environment.get(ENABLED, "").lower() in ("1", "true")


def lost_ranks(comm: MPI.Intracomm) -> frozenset[int]:
    """The ranks of `comm` that are known here to be lost; local, below a microsecond if there are none."""
    if not survives_losses():
        return frozenset()
    lost = comm.Get_failed()
    try:
        return _ranks_in(comm, lost) if lost.size else frozenset()
    finally:
        lost.Free()


def is_loss(error: MPI.Exception) -> bool:
    """Whether an error of MPI says that a rank is lost, or that another rank ends the run for that."""
    from mpi4py import MPI

    return error.Get_error_class() in (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED)


def acknowledge(comm: MPI.Intracomm, error: MPI.Exception) -> None:
    """Go on hearing from any rank after an error that says that one is lost.

    Raises:
        RanksLost: rank 0 is lost.
        RunIsEnded: another rank ends the run.
        MPI.Exception: the error itself, if it says anything else.
    """
    if not is_loss(error):
        raise error
    if comm.Is_revoked():
        raise RunIsEnded("the run is being ended by another rank") from error
    lost = lost_ranks(comm)
    if COORDINATOR in lost:
        raise RanksLost("rank 0, which coordinates the run, is lost") from error
    comm.Ack_failed(len(lost))


def abort(comm: MPI.Intracomm, code: int) -> None:
    """End all ranks now; does not return.

    Where ranks survive each other, MPI's own Abort ends none but this: the others hear of it by their next message.
    """
    if survives_losses():
        from mpi4py import MPI

        leave_first(ABORTED, code)
        with suppress(MPI.Exception):
            comm.Revoke()
        os._exit(code)
    comm.Abort(code)


def abort_because(comm: MPI.Intracomm) -> None:
    """End all ranks because of the exception that is being handled; does not return."""
    error = sys.exc_info()[1]
    if isinstance(error, RanksLost):
        abort(comm, error.code)
    tell(f"rank {comm.rank} failed:\n{traceback.format_exc()}")
    abort(comm, FAILED)


def _ranks_in(comm: MPI.Intracomm, group: MPI.Group) -> frozenset[int]:
    everyone = comm.Get_group()
    try:
        return frozenset(group.Translate_ranks(group=everyone))
    finally:
        everyone.Free()
