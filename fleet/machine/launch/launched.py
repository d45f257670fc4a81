"""Exit codes, and what a rank knows of the launch that started it and leaves there; imported first, and so light."""

from __future__ import annotations

import atexit
import faulthandler
import gc
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from preprocess.files.modules import let_forks_end
from preprocess.files.writing import leave_note, write_whole

DONE = 0
FAILED = 1  # something went wrong; the report or the message says what
BAD_INPUT = 2  # a person can mend it; the message says how
LOST = 70  # ranks or a node were lost; the same command goes on
STOPPED = 75  # stopped early, on purpose; the same command goes on


# What launchers set for each rank: Open MPI and jsrun, PMIx, MPICH and srun's PMI-2, PALS, Flux.
RANK_VARIABLES = (
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "PALS_RANKID",
    "FLUX_TASK_RANK",
    "JSM_NAMESPACE_RANK",
)
TASK_COUNTS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "FLUX_JOB_SIZE", "JSM_NAMESPACE_SIZE")
FOLDER = "FLEET_LAUNCH_FOLDER"  # where rank 0 leaves its process id, and at the end the exit code
BEGUN = "begun"  # left there by each rank as the first thing it does
UP = "up-"  # and its number, left there by each rank once MPI has started
ABORTED = "aborted"  # and a code, left there by a rank that ends all others
HELD = "held"  # left there by rank 0 where another run keeps the run directory: no other start helps
CHECKING = "checking"  # there while rank 0 checks the spec, and so imports and tries what that names
CODE_FILE = "FLEET_CODE_FILE"  # where a batch script wants the exit code, as launchers hide and change it
TERMINAL = "FLEET_TERMINAL"


def inside_launcher(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether this process is a rank that mpirun, srun, jsrun or another launcher started."""
    return any(name in environment for name in RANK_VARIABLES)


def ranks_started(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return how many ranks the launcher says that it started; None if it does not."""
    return next((int(environment[name]) for name in TASK_COUNTS if environment.get(name, "").isdigit()), None)


def launched_by_us(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether plain `fleet` started this rank: it then reads the exit code from a file, and mpiexec stays quiet."""
    return FOLDER in environment


def launch_folder(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """The folder that our own launch made for its ranks, if it was our own."""
    return [Path(environment[FOLDER])] if FOLDER in environment else []


def tell_begun(environment: Mapping[str, str] = os.environ) -> None:
    """On every rank, first of all: whatever goes wrong from here on is not the launcher's doing."""
    for folder in launch_folder(environment):
        with suppress(OSError):
            leave_note(folder / BEGUN)


def tell_up(rank: int, environment: Mapping[str, str] = os.environ) -> None:
    """On every rank: MPI has started here and everywhere; from now on it tells of ranks that are lost.

    All ranks understand signals by now; a batch script hands them on to ranks that are up alone.
    """
    for folder in launch_folder(environment):
        with suppress(OSError):
            leave_note(folder / f"{UP}{rank}")
    if rank == 0 and CODE_FILE in environment:
        with suppress(OSError):
            leave_note(environment[CODE_FILE] + ".up")


def leave_code(rank: int, code: int, environment: Mapping[str, str] = os.environ) -> int:
    """Leave a run's exit code for who started the ranks and reads it; return the one that this rank is to end with.

    Launchers kill the other ranks at the first that ends with another code than 0, and make noise.
    """
    if rank == 0:
        leave("code", code, environment)
        if CODE_FILE in environment:
            write_whole(environment[CODE_FILE], f"{code}\n")
    return 0 if launched_by_us(environment) or CODE_FILE in environment else code


def leave(name: str, value: int, environment: Mapping[str, str] = os.environ) -> None:
    """On rank 0: leave a number for the process that started the ranks, if one did and lives; whole or not at all."""
    for folder in launch_folder(environment):
        with suppress(FileNotFoundError):
            leave_note(folder / name, str(value))


@contextmanager
def checking(environment: Mapping[str, str] = os.environ) -> Iterator[None]:
    """On rank 0: say that the spec is being checked; if code that it names ends the process, Python's stack is told."""
    leave(CHECKING, os.getpid(), environment)
    faulthandler.enable(all_threads=False)
    try:
        yield
    finally:
        faulthandler.disable()
        for folder in launch_folder(environment):
            (folder / CHECKING).unlink(missing_ok=True)


def leave_first(name: str, value: int, environment: Mapping[str, str] = os.environ) -> None:
    """On any rank: the same, unless another rank has left such a number already."""
    for folder in launch_folder(environment):
        with suppress(FileNotFoundError, FileExistsError):
            leave_note(folder / name, str(value), replace=False)


@contextmanager
def loading() -> Iterator[None]:
    """Let nobody look for garbage while something is imported. Later collections leave out what is there by then.

    What an import makes stays. To look through it again and again takes a fifth of the seconds in which torch is
    imported, to do so once behind it a fifth of a second, and at the end of a rank a second.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()  # before the first collection, which comes with the next object
        if collects:
            gc.enable()


class QuickEnd:
    """Ends this process once its code is known and all that is registered after this for its end has been done.

    Python would then take every module apart, torch's last: an eighth of a second of each rank's core, for nothing.
    Where no code is known, as an error came, Python ends as it does.
    """

    def __init__(self) -> None:
        self._code: int | None = None
        atexit.register(self._end)  # first, and so called last

    def with_code(self, code: int) -> int:
        """End with this exit code; returns it."""
        self._code = code
        return code

    def _end(self) -> None:
        if self._code is None:
            return
        if (mpi := sys.modules.get("mpi4py.MPI")) is not None and mpi.Is_initialized() and not mpi.Is_finalized():
            mpi.Finalize()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(self._code)


_LARGEST = "49152"
"""Bytes of a small message, with MPI's header."""
_VARIABLES = {
    "OMPI_MCA_btl_sm_flags": "send",
    "OMPI_MCA_btl_sm_eager_limit": _LARGEST,
    "OMPI_MCA_btl_sm_rndv_eager_limit": _LARGEST,
    "OMPI_MCA_btl_sm_max_send_size": _LARGEST,
}
"""Open MPI's own: "send,inplace", 4096, 32768 and 32768."""


def copy_small_messages() -> None:
    """Ask Open MPI, before it starts, to copy small messages instead of lending their memory to the receiver.

    A send of lent memory is complete only once the receiver has looked, which takes milliseconds where it computes: a
    member that sends its buffers would wait as long. What is asked for in variables already stays.
    """
    for name, value in _VARIABLES.items():
        os.environ.setdefault(name, value)


STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
"""SIGHUP comes when a terminal closes, as when a connection is lost."""


def stopping() -> list[signal.Signals]:
    """Return the signals that stop this process: not SIGHUP where it is ignored, as below nohup."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in STOPPING if not (ignored and number == signal.SIGHUP)]


class StopFlag:
    """Raised by SIGTERM, SIGINT, SIGUSR1 or SIGHUP."""

    def __init__(self) -> None:
        self.raised = False

    def install(self) -> None:
        """Take the signals over; from now on they only raise the flag, but in processes that are forked."""
        numbers = stopping()
        for number in numbers:
            signal.signal(number, self._raise)
        let_forks_end(numbers)

    def __call__(self) -> bool:
        return self.raised

    def set(self) -> None:
        """Raise it without a signal."""
        self.raised = True

    def _raise(self, number: int, frame: FrameType | None) -> None:
        self.set()
