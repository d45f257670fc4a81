"""What all ranks of a run agree on: what rank 0 found out, and the exit code with which they end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fleet.coordination.failures import CannotGoOnError, RunIsEnded, abort, abort_because, is_loss, lost_ranks
from fleet.journal.directory import RunDirectoryError
from fleet.journal.whole_files import ProfileError
from fleet.machine.cluster_map import COORDINATOR, ClusterError, broadcast
from fleet.machine.launch.launched import BAD_INPUT, FAILED, LOST, leave_code
from fleet.machine.raised_in import raised_in
from fleet.machine.standard_streams import tell
from fleet.spec import EnsembleSpec, SpecError
from fleet.spec.job import is_task_data
from preprocess import SourceError
from preprocess.samples.errors import SampleError, SharedMemoryError, TransformError

if TYPE_CHECKING:
    from mpi4py import MPI


_T = TypeVar("_T")


class BadInput(ValueError):
    """A person can mend this; the text is all they need."""


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


def agree(world: MPI.Intracomm, find: Callable[[], Any], read: Callable[[Any], _T]) -> _T:
    """Let rank 0 find something out and tell all; an error of its is every rank's.

    Args:
        find: gives JSON-able values, on rank 0.
        read: makes the result out of them.

    Raises:
        BadInput: on the other ranks, with what a person got wrong; rank 0 raises the error itself.
    """
    said: dict[str, Any] = {}
    failure: BaseException | None = None
    if world.rank == COORDINATOR:
        try:
            said = {"value": find()}
        except MENDABLE as error:
            failure, said = error, {"error": str(error)}
    said = json.loads(broadcast(world, json.dumps(said)))
    if "error" in said:
        raise failure if failure is not None else BadInput(said["error"])
    return read(said["value"])


def agree_on_spec(world: MPI.Intracomm, find: Callable[[], EnsembleSpec], folder: Path) -> EnsembleSpec:
    """Let rank 0 read and validate the spec; the others take its word, and read those of its jobs that they train.

    Args:
        find: gives the spec, on rank 0.
        folder: where its modules and relative paths are looked for.

    Raises:
        BadInput: as `agree`.
    """
    found: list[EnsembleSpec] = []
    lines = ""

    def told() -> dict[str, Any]:
        nonlocal lines
        found.append(find())
        values, lines = found[0].to_lines()
        return values

    values = agree(world, told, lambda value: value)
    lines = broadcast(world, lines)
    return found[0] if found else EnsembleSpec.from_lines(values, lines, folder)


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


def told_of(error: SampleError) -> str:
    """Return the sentence, and the lines of sources and transforms that raised, from the outermost to the innermost."""
    lines = lines_of(error)
    where = f"\nit was raised in\n{lines}" if lines else ""
    return f"{sentence_of(error)}; the same command goes on then{where}"


def sentence_of(error: SampleError) -> str:
    """Return which sample cannot be made, why, and the mend."""
    if error.more:
        return str(error)
    skip = "" if is_task_data(error.data) else f", or set data.{error.data}.on_corrupt to skip"
    return f"{error}; mend it or what reads it{skip}"


def lines_of(error: SampleError) -> str:
    """Return the lines of sources and transforms that raised; "" if none did."""
    return raised_in(error.__cause__) if error.__cause__ else ""


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
