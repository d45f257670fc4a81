"""The lock of a run directory: kernels that lock, that do not, and that lock for one node alone."""

from __future__ import annotations

import errno
import fcntl
import gc
import itertools
import json
import os
import signal
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import psutil
import pytest

from fleet.journal.lock import SILENT_SECONDS, HeldError, Holder, Lock, LockWatch, take
from preprocess.files.writing import LaidByOthers

HOLD = """
import sys, pathlib
from fleet.journal.lock import take
held = take(pathlib.Path(sys.argv[1]))
print(1, flush=True)
input()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".lock"


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system whose kernel has no locks."""

    def refuse(file: object, operation: int, argument: bytes) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "fcntl", refuse)


@pytest.fixture
def elsewhere() -> Holder:
    """A process of another node."""
    return replace(Holder.own(), host="far", boot="another")


def write(path: Path, holder: Holder) -> None:
    path.write_text(json.dumps(asdict(holder)))


def fast_clock() -> Callable[[], float]:
    """Each look at it, ten seconds are over."""
    return itertools.count(0.0, 10.0).__next__


def killed_holder(path: Path) -> Holder:
    """A process that took the lock and was killed."""
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"1\n"
        held = LockWatch(path).holder()
        assert held is not None and held.pid == process.pid
        with pytest.raises(HeldError, match=f"process {process.pid} on "):
            take(path)
        process.send_signal(signal.SIGKILL)
    return held


def test_a_killed_process_holds_no_longer(path: Path) -> None:
    assert killed_holder(path).lives() is False
    assert LockWatch(path).holder() is None
    assert take(path)


def test_a_start_waits_for_the_one_that_holds(path: Path) -> None:
    held: list[Lock] = [take(path)]
    told: list[str] = []

    def leave(text: str) -> None:
        told.append(text)
        held.clear()
        gc.collect()

    assert take(path, patience=60.0, tell=leave)
    assert told == [f"another run is writing there now ({Holder.own()}); waiting for its end, 60 s at most"]


def test_a_signal_ends_the_waiting(path: Path) -> None:
    held = take(path)
    with pytest.raises(HeldError):
        take(path, patience=1e9, stop=lambda: True)
    held.renew()


def test_who_leaves_in_good_order_leaves_no_record(path: Path, no_locks: None) -> None:
    held = take(path)
    assert LockWatch(path).holder() == Holder.own()
    del held
    gc.collect()
    assert path.read_bytes() == b"" and LockWatch(path).holder() is None


@pytest.mark.parametrize("mask, record, held", [(0o022, 0o644, 0o600), (0o002, 0o664, 0o620), (0o077, 0o600, 0o600)])
def test_modes_are_the_umask_s_and_only_who_may_write_can_open_what_is_locked(
    path: Path, mask: int, record: int, held: int
) -> None:
    before = os.umask(mask)
    try:
        lock = take(path)
    finally:
        os.umask(before)
    assert [stat.S_IMODE((path.parent / name).stat().st_mode) for name in (".lock", ".lock.held")] == [record, held]
    lock.renew()
    del lock
    gc.collect()
    assert [file.name for file in path.parent.iterdir()] == [".lock"], "readers copy the directory whole"


def test_no_lock_on_what_everybody_reads_holds_a_start_up(path: Path) -> None:
    take(path)
    gc.collect()
    with open(path, "rb") as exclusive, open(path, "rb") as shared:
        fcntl.flock(exclusive, fcntl.LOCK_EX)
        fcntl.fcntl(shared, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0))
        assert take(path)


@pytest.mark.parametrize("kind, who", [("lockf", "process PID, which has locked"), ("ofd", "fuser")])
def test_a_holder_that_does_not_say_who_it_is_is_told_as_far_as_the_kernel_knows_it(
    path: Path, kind: str, who: str
) -> None:
    with open(path.with_name(".lock.held"), "wb") as file:
        if kind == "lockf":
            fcntl.lockf(file, fcntl.LOCK_EX)
        else:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
        with pytest.raises(
            HeldError, match=f"another run is writing there now .*{who.replace('PID', str(os.getpid()))}"
        ):
            take(path)
        assert os.path.exists(file.name)


def test_a_start_takes_no_file_that_the_holder_before_has_taken_away(path: Path) -> None:
    first = take(path)
    with open(path.with_name(".lock.held"), "ab") as old:
        del first
        gc.collect()
        second = take(path)
        assert not os.path.samestat(os.fstat(old.fileno()), path.with_name(".lock.held").stat())
        with pytest.raises(HeldError):
            take(path)
        second.renew()


def test_an_older_version_s_run_is_known_by_its_record(path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        write(path, replace(Holder.own(), pid=process.pid, started=int(psutil.Process(process.pid).create_time())))
        with pytest.raises(HeldError, match=f"process {process.pid} on "):
            take(path)
        process.communicate(b"\n")
    assert take(path)


def test_what_somebody_laid_is_not_written_through(path: Path) -> None:
    (path.parent / "victim").write_text("precious")
    for name in (".lock", ".lock.held"):
        link = path.with_name(name)
        link.symlink_to("victim")
        with pytest.raises(LaidByOthers, match="is a link"):
            take(path)
        link.unlink()
        os.mkfifo(link)
        with pytest.raises(OSError, match="named pipe"):
            take(path)
        link.unlink()
    assert (path.parent / "victim").read_text() == "precious"


@pytest.mark.parametrize(
    "record",
    [
        "[1]", "{}", "[" * 100_000, '{"host": 1}', "\0" * 1000,
        '{"host":"a","pid":"x","started":0,"namespace":0,"boot":""}',
        '{"host":"a","pid":-1,"started":0,"namespace":0,"boot":""}',
        '{"host":"a","pid":1,"started":1e999,"namespace":0,"boot":""}',
        '{"host":"\\u001b[2J","pid":1,"started":1,"namespace":0,"boot":""}',
    ],
)  # fmt: skip
def test_a_record_that_is_none_names_nobody(path: Path, record: str) -> None:
    path.write_text(record)
    assert Holder.read(path) is None and take(path)


def test_without_the_kernels_locks_the_record_tells(path: Path, no_locks: None) -> None:
    held = take(path)
    with pytest.raises(HeldError, match="another run is writing there now"):
        take(path)
    held.renew()


def test_without_the_kernels_locks_a_killed_process_keeps_nobody_out(path: Path, no_locks: None) -> None:
    killed_holder(path)
    assert take(path)


def test_a_lock_that_another_node_keeps_renewing_is_held(path: Path, elsewhere: Holder) -> None:
    write(path, elsewhere)
    beats = itertools.count(1)

    def renewed() -> bool:
        write(path, replace(elsewhere, beat=next(beats)))
        return False

    with pytest.raises(HeldError, match=r"process \d+ on far"):
        take(path, patience=3 * SILENT_SECONDS, stop=renewed, clock=fast_clock())


def test_a_lock_that_rests_on_another_node_is_free(path: Path, elsewhere: Holder) -> None:
    write(path, elsewhere)
    held = take(path, patience=3 * SILENT_SECONDS, clock=fast_clock())
    assert LockWatch(path).holder() == Holder.own()
    held.renew()


def test_who_was_taken_for_dead_learns_it_and_leaves_the_others_record(path: Path, elsewhere: Holder) -> None:
    held = take(path)
    write(path, elsewhere)
    with pytest.raises(HeldError, match="another run has begun to write there .process .* on far"):
        held.renew()
    del held
    gc.collect()
    assert Holder.read(path) == elsewhere
