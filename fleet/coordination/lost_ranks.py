"""Ranks whose processes are gone, where MPI tells the others of them instead of ending all.

User-level failure mitigation (ULFM: Bland et al., Post-failure recovery of MPI communication capability, IJHPCA 2013):
messages among living ranks go on, and a rank that waits for a lost one gets an error. Open MPI has it,
where its launcher is given `--with-ft ulfm`.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from fleet.coordination.errors import CannotGoOnError
from fleet.machine.cluster_map import COORDINATOR
from fleet.machine.launch.launched import ABORTED, FAILED, LOST, leave_first
from fleet.machine.standard_streams import tell

if TYPE_CHECKING:
    from mpi4py import MPI

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
