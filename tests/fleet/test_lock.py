"""The lock of a run directory: kernels that lock, that do not, and that lock for one node alone."""

from __future__ import annotations

import errno
import fcntl
import gc
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from fleet.run_directory.lock import SILENT_SECONDS, HeldError, Holder, Lock, LockWatch, take

HOLD = """
import sys, pathlib
from fleet.run_directory.lock import take
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

    def refuse(file: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)


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
