"""Runs of the real command, each with all its processes under control."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.warm.starting import python_path

MARK = "FLEET_TEST_RUN"
LIMIT_SECONDS = 150.0
ROOT = Path(__file__).resolve().parents[3]
POLL_SECONDS = 0.05
STACKS_SECONDS = 2.0
LOOPBACK = "--pmixmca ptl_base_if_include lo"
MPI_OPTIONS = "--oversubscribe --bind-to none --mca osc ^ucx --mca pml ob1 --mca btl self,sm,tcp"
MPIEXEC = [str(Path(sys.executable).with_name("mpiexec")), *LOOPBACK.split(), *MPI_OPTIONS.split()]
FLEET = [sys.executable, "-m", "fleet"]


@dataclass(frozen=True)
class Ended:
    """How a run ended: its exit code, and all that it wrote to standard output and error."""

    code: int
    output: str


class Running:
    """A started command; its processes, whatever sessions they made, are known by a mark in their environment."""

    def __init__(self, command: Sequence[str], folder: Path, variables: Mapping[str, str]) -> None:
        self._mark = uuid.uuid4().hex
        self._output = folder / f"output-{self._mark[:8]}.txt"
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("OMPI_", "PMIX_", "PRTE_"))},
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": python_path(),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            MARK: self._mark,
            **variables,
        }
        with open(self._output, "wb") as output:
            self.process = subprocess.Popen(
                list(command), cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip

    @property
    def output(self) -> str:
        """What was written so far."""
        return self._output.read_text(errors="replace")

    def finish(self, seconds: float = LIMIT_SECONDS) -> Ended:
        """Wait for the end; a run that takes longer, or leaves processes behind, is a failure."""
        try:
            code = self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self._tell_where_it_is()
            self.kill()
            pytest.fail(f"the run did not end within {seconds:.0f} s; it wrote:\n{self.output}")
        self.wait_for(lambda: not list(self._processes()), "its processes to go")
        return Ended(code, self.output)

    def wait_for(self, holds: Callable[[], bool], what: str, seconds: float = LIMIT_SECONDS) -> None:
        """Poll until `holds()`."""
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                alive = [" ".join(process.cmdline()[:6]) for process in self._processes()]
                self.kill()
                pytest.fail(f"waited {seconds:.0f} s for {what}; alive: {alive}; the run wrote:\n{self.output}")
            time.sleep(POLL_SECONDS)

    def interrupt(self, number: int = signal.SIGINT) -> None:
        """Send a signal to the command that was started, as a terminal or a batch system does."""
        self.process.send_signal(number)

    def kill_rank(self, rank: int) -> None:
        """End one rank, as the kernel does where memory runs out."""
        (found,) = [each for each in self._processes() if _rank_of(each) == str(rank)]
        found.kill()

    def kill_launcher(self) -> None:
        """End what started the ranks, which have to see for themselves."""
        for found in [each for each in self._processes() if _is_launcher(each)]:
            found.kill()

    def kill(self) -> None:
        """End every process of the run at once, as a power cut does."""
        while found := list(self._processes()):
            for process in found:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    continue
            psutil.wait_procs(found, timeout=10)
        self.process.wait()

    def _tell_where_it_is(self) -> None:
        """Have each warm process write its threads' stacks; cold ones are ended by the signal."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                if process.cmdline()[:1] == [sys.executable]:
                    process.send_signal(signal.SIGTRAP)
        time.sleep(STACKS_SECONDS)

    def _processes(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            try:
                ours = process.environ().get(MARK) == self._mark and process.status() != psutil.STATUS_ZOMBIE
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            if ours:
                yield process


def _is_launcher(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return any(Path(part).name in ("mpiexec", "mpirun", "prterun") for part in process.cmdline()[:2])
    return False


def _rank_of(process: psutil.Process) -> str | None:
    """As Open MPI or MPICH tells it."""
    environment = process.environ()
    return environment.get("OMPI_COMM_WORLD_RANK", environment.get("PMI_RANK"))


@contextmanager
def started(command: Sequence[str], folder: Path, **variables: str) -> Iterator[Running]:
    """A command that runs meanwhile in `folder`; nothing of it outlives the block."""
    running = Running(command, folder, variables)
    try:
        yield running
    finally:
        running.kill()


def run(command: Sequence[str], folder: Path, seconds: float = LIMIT_SECONDS, /, **variables: str) -> Ended:
    """Run a command to its end."""
    with started(command, folder, **variables) as running:
        return running.finish(seconds)
