"""Where a run of `benchmarks.chaos` runs, and what happens to it there.

Kills, and pauses longer than the watchdog's time, hit one rank. The other faults need more: a disk of a few MiB that
is filled (root), hosts whose network is cut (root, iproute2), a clock that jumps (a C compiler).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.rank_processes import ranks
from benchmarks.virtual_hosts import VirtualCluster, virtual_hosts, why_not

Process = subprocess.Popen[Any]

TIMEOUT_SECONDS = 30.0  # `resources.timeout` of the runs that are paused or cut
LONGER = 1.25  # of it
DISK_MIB = 6
HOUR = 3600.0

CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
static volatile double *seconds;
__attribute__((constructor)) static void open_offset(void) {
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    void *found = file < 0 ? MAP_FAILED : mmap(0, sizeof(double), PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) seconds = found;
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(clock, now);
    int is_wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (code == 0 && seconds && is_wall) now->tv_sec += (time_t)*seconds;
    return code;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    int code = clock_gettime(CLOCK_REALTIME, &exact);
    if (now) { now->tv_sec = exact.tv_sec; now->tv_usec = exact.tv_nsec / 1000; }
    return code;
}
time_t time(time_t *into) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (into) *into = exact.tv_sec;
    return exact.tv_sec;
}
"""


@dataclass
class Scene:
    """A place for one run: nothing happens there but kills.

    Attributes:
        folder: the run's own.
        out: its run directory.
        launch: words before its command.
        environment: its environment.
        ends_the_run: whether its fault is expected to, so that the next comes in another start.
    """

    folder: Path
    out: Path
    launch: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    ends_the_run: bool = False

    def strike(self, process: Process, draw: random.Random) -> bool:
        """Let the fault happen; False if there is nothing that it could hit."""
        alive = ranks(process)
        if alive:
            with suppress(psutil.NoSuchProcess):
                draw.choice(alive).kill()
                return True
        return False

    def mended(self) -> None:
        """Take the fault back, after the end of the command."""


class _Paused(Scene):
    """A rank stands still for longer than the watchdog's time."""

    def strike(self, process: Process, draw: random.Random) -> bool:
        alive = ranks(process)
        with suppress(psutil.NoSuchProcess, IndexError):
            hit = draw.choice(alive)
            hit.send_signal(signal.SIGSTOP)
            until = time.monotonic() + LONGER * TIMEOUT_SECONDS
            while time.monotonic() < until and process.poll() is None:
                time.sleep(0.05)
            with suppress(psutil.NoSuchProcess):
                hit.send_signal(signal.SIGCONT)
            return True
        return False


class _FullDisk(Scene):
    """The disk of the run directory is full until the run has ended."""

    def strike(self, process: Process, draw: random.Random) -> bool:
        with suppress(OSError), open(self.out.parent / "filling", "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        return True

    def mended(self) -> None:
        (self.out.parent / "filling").unlink(missing_ok=True)


class _CutNetwork(Scene):
    """The second of two hosts has no network any more, for longer than the watchdog's time."""

    cut: Callable[[bool], None]

    def strike(self, process: Process, draw: random.Random) -> bool:
        self.cut(True)
        until = time.monotonic() + LONGER * TIMEOUT_SECONDS
        while time.monotonic() < until and process.poll() is None:
            time.sleep(0.05)
        self.cut(False)
        return True


class _JumpingClock(Scene):
    """The clock of all processes jumps by an hour, forward or back."""

    def strike(self, process: Process, draw: random.Random) -> bool:
        with open(self.environment["CHAOS_CLOCK"], "r+b", buffering=0) as file:
            (now,) = struct.unpack("d", file.read(8))
            file.seek(0)
            file.write(struct.pack("d", now + draw.choice((HOUR, -HOUR))))
        return True


@contextmanager
def plain(folder: Path) -> Iterator[Scene]:
    """A folder of this machine, where ranks are killed."""
    yield Scene(folder, folder / "out")


@contextmanager
def paused(folder: Path) -> Iterator[Scene]:
    """The same, where ranks are paused."""
    yield _Paused(folder, folder / "out")


@contextmanager
def full_disk(folder: Path) -> Iterator[Scene]:
    """A disk that can be filled without anybody else's harm."""
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(disk)], check=True)
    try:
        yield _FullDisk(folder, disk / "out", ends_the_run=True)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@contextmanager
def cut_network(folder: Path) -> Iterator[Scene]:
    """Two hosts, of which one can be cut off."""
    with virtual_hosts(2) as cluster:
        own = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        scene = _CutNetwork(folder, folder / "out", cluster.mpiexec(3), {**os.environ, **own}, ends_the_run=True)
        scene.cut = lambda off: _cut(cluster, off)
        yield scene


def _cut(cluster: VirtualCluster, off: bool) -> None:
    command = [*cluster.on("login"), "ip", "link", "set", "h2", "down" if off else "up"]
    subprocess.run(command, check=True)


@contextmanager
def jumping_clock(folder: Path) -> Iterator[Scene]:
    """Processes whose clock is the machine's with something added."""
    source, library, offset = folder / "clock.c", folder / "clock.so", folder / "offset"
    source.write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"], check=True)
    offset.write_bytes(struct.pack("d", 0.0))
    changed = {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(offset)}
    yield _JumpingClock(folder, folder / "out", environment={**os.environ, **changed})


def no_disk() -> str | None:
    """Why no disk can be made here that may be filled; None if it can."""
    if os.geteuid() != 0:
        return "mounting a small disk needs root"
    with tempfile.TemporaryDirectory() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]
        done = subprocess.run(["unshare", "--mount", *mount], capture_output=True, text=True)
    return None if done.returncode == 0 else f"no small disk can be mounted here: {done.stderr.strip()}"


def no_clock() -> str | None:
    """Why no clock can jump here; None if one can."""
    return None if shutil.which("cc") else "a clock that jumps needs a C compiler"


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Attributes:
        scene: makes the place of one run.
        why_not: says why that cannot be made here; None if it can.
        moments: when the runs are hit, one kind of run after the other.
        timeout: whether ranks wait for each other for TIMEOUT_SECONDS alone.
    """

    scene: Callable[[Path], Any]
    why_not: Callable[[], str | None] = lambda: None
    moments: tuple[tuple[str, ...], ...] = (("any", "any"), ("any", "checkpoint"), ("forming", "any"))
    timeout: bool = False


KILLS = Kind(
    plain,
    moments=(
        ("start", "any", "any", "any"),
        ("any", "forming", "any", "forming"),
        ("any", "checkpoint", "any", "checkpoint"),
    ),
)
OTHERS = {
    "full disks": Kind(full_disk, no_disk),
    "paused processes": Kind(paused, timeout=True),
    "lost networks": Kind(cut_network, why_not, timeout=True),
    "jumps of the clock": Kind(jumping_clock, no_clock, moments=(("start", "any", "any", "any"), ("any",) * 4)),
}
