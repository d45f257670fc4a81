"""What ends a run through no fault of the program, and ranks whose processes are gone.

Where MPI has user-level failure mitigation, it tells the other ranks of a lost one instead of ending all (ULFM: Bland
et al., Post-failure recovery of MPI communication capability, IJHPCA 2013): messages among living ranks go on, and a
rank that waits for a lost one gets an error. Open MPI has it where its launcher is given `--with-ft ulfm`.
"""

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
        code: exit code of the run.
    """

    code = FAILED


class FailedJobsError(CannotGoOnError):
    """Jobs have failed in a way that stops all ranks; the same command goes on without them.

    Attributes:
        jobs: theirs.
    """

    code = LOST

    def __init__(self, text: str, *jobs: str) -> None:
        super().__init__(text)
        self.jobs = jobs


class SilentGroupError(FailedJobsError):
    """A group has said nothing for too long."""


class TornDataError(CannotGoOnError):
    """A sample of a data set cannot be made, and none may take its place.

    Attributes:
        data: the data set. lines: those of sources and transforms that raised, if any did.
    """

    def __init__(self, data: str, text: str, lines: str = "") -> None:
        super().__init__(text)
        self.data, self.lines = data, lines


class TooFewDevicesError(CannotGoOnError):
    """Too few devices are left for any job; a new start has all again."""

    code = LOST


class StorageError(CannotGoOnError):
    """A file on which the run depends cannot be written or read."""


@contextmanager
def storage() -> Iterator[None]:
    """Turn the system's errors into a `StorageError`.

    Raises:
        StorageError: it names the file and what the system says of it.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:  # fleet's own time-out
            raise
        raise StorageError(f"{error.filename or 'a file of the run'}: {error.strerror}") from error


ENABLED = "OMPI_MCA_mpi_ft_enable"  # set for each rank by mpiexec --with-ft ulfm


class RanksLost(CannotGoOnError):
    """Ranks are lost without which the others cannot go on; the same command goes on from the checkpoints."""

    code = LOST


class RunIsEnded(RanksLost):
    """Another rank ends the run; it has said why."""


def survives_losses(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether MPI lets the other ranks live when one is lost."""
    return environment.get(ENABLED, "").lower() in ("1", "true")


def lost_ranks(comm: MPI.Intracomm) -> frozenset[int]:
    """Return the ranks of `comm` that are known here to be lost; local, below a microsecond if there are none."""
    if not survives_losses():
        return frozenset()
    lost = comm.Get_failed()
    try:
        return _ranks_in(comm, lost) if lost.size else frozenset()
    finally:
        lost.Free()


def is_loss(error: MPI.Exception) -> bool:
    """Return whether an error of MPI says that a rank is lost, or that another rank ends the run for that."""
    from mpi4py import MPI

    return error.Get_error_class() in (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED)


def acknowledge(comm: MPI.Intracomm, error: MPI.Exception) -> None:
    """Go on receiving from any rank after an error that says that one is lost.

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

    Where ranks survive each other, MPI's own Abort ends only this one; the others get an error at their next message.
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
