"""How a rank of a run ends: with which exit code, with what said, and with or without the other ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fleet.coordination.errors import CannotGoOnError
from fleet.coordination.lost_ranks import RunIsEnded, abort, abort_because, is_loss, lost_ranks
from fleet.journal.directory import RunDirectoryError
from fleet.journal.profile import ProfileError
from fleet.machine.cluster_map import COORDINATOR, ClusterError
from fleet.machine.launch.launched import BAD_INPUT, FAILED, LOST, leave_code
from fleet.machine.standard_streams import tell
from fleet.run.bad_input import BadInput
from fleet.run.ranks.torn_samples import told_of
from fleet.spec import SpecError
from preprocess import SampleError, SharedMemoryError, SourceError, TransformError

if TYPE_CHECKING:
    from mpi4py import MPI

THREAD_END_SECONDS = 10.0

#: What a user can have got wrong; it is told without a traceback.
MENDABLE = (
    BadInput,
    SpecError,
    ClusterError,
    ProfileError,
    RunDirectoryError,
    SharedMemoryError,
    SourceError,
    TransformError,
)


def exit_code(world: MPI.Intracomm, work: Callable[[], int]) -> int:
    """Do this rank's work; returns what the rank ends with. An error that no person can mend ends all ranks."""
    from mpi4py import MPI

    try:
        return leave_code(world.rank, work())
    except MENDABLE as error:
        # Raised alike on every rank, or on rank 0 while the others wait for its word: they get it from `agree`.
        if world.rank == COORDINATOR:
            tell(str(error))
        return leave_code(world.rank, BAD_INPUT)
    except SampleError as error:
        tell(f"rank {world.rank}: {told_of(error)}")
        abort(world, FAILED)
        raise
    except CannotGoOnError as error:
        if not isinstance(error, RunIsEnded):
            tell(f"rank {world.rank}: {error}")
        abort(world, error.code)
        raise
    except MPI.Exception as error:
        if is_loss(error):
            tell(f"rank {world.rank}: another rank was lost")
            abort(world, LOST)
        abort_because(world)
        raise
    except BaseException:
        abort_because(world)
        raise


@contextmanager
def ends_all(world: MPI.Intracomm) -> Iterator[None]:
    """End all ranks if this one meets, inside, what a person can mend: the others know nothing of it."""
    try:
        yield
    except MENDABLE as error:
        tell(f"rank {world.rank}: {error}")
        abort(world, BAD_INPUT)
        raise


def await_all(world: MPI.Intracomm, code: int, timeout: float) -> None:
    """Wait until all ranks have come to their end, since MPI would wait for them for ever.

    A preprocessor whose source never comes back may make a sample that nobody needs. Lost ranks are not waited for.

    Args:
        code: what the run ends with.
        timeout: seconds after which all ranks are ended.
    """
    from mpi4py import MPI

    end = time.monotonic() + timeout
    if lost_ranks(world):
        return  # they never come
    try:
        everybody = world.Ibarrier()
        while not everybody.Test() and not lost_ranks(world):
            if time.monotonic() > end:
                late = f"the run is over, but not all ranks have ended within {timeout:g} s"
                tell(f"rank {world.rank}: {late}; a source of data may be stuck")
                leave_code(world.rank, code)
                abort(world, code or FAILED)
            time.sleep(0.002)
    except MPI.Exception as error:
        if not is_loss(error):
            raise
