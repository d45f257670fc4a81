"""How often a rank looks whether a message has come: the longer none did, the less often."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleet.coordination import mailbox
from fleet.coordination.mailbox import Mailbox
from fleet.coordination.protocol import Left, Shutdown
from fleet.machine.launch.local_launch import find_mpiexec

PROGRAMS = Path(__file__).with_name("programs")
ROOT = PROGRAMS.parents[2]
MESSAGES = 20


class Clock:
    """Time that passes only while somebody sleeps, and how long each slept."""

    def __init__(self) -> None:
        self.now, self.slept = 0.0, list[float]()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(mailbox, "time", made)
    return made


def test_looks_become_rare_in_a_long_silence_and_none_is_late_by_more_than_a_part_of_it(clock: Clock) -> None:
    MPI: Any = pytest.importorskip("mpi4py.MPI")
    box = Mailbox(MPI.COMM_SELF, 17)
    clock.now = box._heard = 100.0
    assert box.receive(10.0) is None and clock.now == pytest.approx(110.0)
    assert clock.slept[0] < 0.001 and clock.slept[-2] == 0.02
    silence = 0.0
    for slept in clock.slept:
        assert slept <= max(0.005, 0.01 * silence, 1.5 * 0.0002) + 1e-9
        silence += slept


def test_a_message_ends_the_silence(clock: Clock) -> None:
    MPI: Any = pytest.importorskip("mpi4py.MPI")
    box = Mailbox(MPI.COMM_SELF, 18)
    clock.now, box._heard = 1000.0, 0.0
    assert box.pause == 0.02
    box.send(0, 18, Shutdown(0))
    assert box.receive(10.0) == Shutdown(0) and box.pause == 0.005


class Rung:
    """A bell that is heard whenever somebody has rung since the last wait; waits pass as the clock says."""

    def __init__(self, clock: Clock, reaches_all: bool = True) -> None:
        self._clock, self.reaches_all = clock, reaches_all
        self.rung, self.waits = list[tuple[int, int]](), list[float]()

    def ring(self, rank: int, inbox: int) -> None:
        self.rung.append((rank, inbox))

    def wait(self, inbox: int, seconds: float) -> bool:
        self.waits.append(seconds)
        heard = bool(self.rung)
        self.rung.clear()
        self._clock.now += 0.0 if heard else seconds
        return heard


def test_who_hears_a_bell_looks_seldom_and_at_once_when_it_rings(clock: Clock) -> None:
    MPI: Any = pytest.importorskip("mpi4py.MPI")
    bell = Rung(clock)
    box = Mailbox(MPI.COMM_SELF, 19, bell)
    assert box.receive(1.0) is None and not clock.slept
    assert bell.waits == pytest.approx([0.05] * 20)
    box.send(0, 19, Shutdown(0))
    assert bell.rung == [(0, 19)] and box.receive(1.0) == Shutdown(0)
    bell.rung.append((0, 19))  # whoever rang, its message is not there yet
    bell.waits.clear()
    assert box.receive(1.0) is None and bell.waits[1] < 0.001 and bell.waits[-2] == 0.05


def test_who_also_waits_for_something_else_asks_as_often_as_without_a_bell(clock: Clock) -> None:
    MPI: Any = pytest.importorskip("mpi4py.MPI")
    bell = Rung(clock)
    box = Mailbox(MPI.COMM_SELF, 24, bell)
    assert box.receive(1.0, until=lambda: clock.now > 0.49) is None
    assert bell.waits == pytest.approx([0.02] * 25)


def test_where_a_bell_does_not_reach_all_messages_are_looked_for_as_often_as_without(clock: Clock) -> None:
    MPI: Any = pytest.importorskip("mpi4py.MPI")
    box = Mailbox(MPI.COMM_SELF, 20, Rung(clock, reaches_all=False))
    clock.now = box._heard = 100.0
    assert box.pause == 0.005
    assert box.receive(10.0) is None and max(box.bell.waits) == 0.02  # type: ignore[union-attr]


def test_a_large_message_on_its_way_is_helped_on_as_often_as_without_a_bell(clock: Clock) -> None:
    MPI: Any = pytest.importorskip("mpi4py.MPI")
    box, taken = Mailbox(MPI.COMM_SELF, 21, Rung(clock)), Mailbox(MPI.COMM_SELF, 21)
    box.send(0, 21, Shutdown(0))
    assert box.pause == 0.05 and taken.receive(1.0) == Shutdown(0)
    gone = [False]
    box._going.append(SimpleNamespace(Test=lambda: gone[0]))  # type: ignore[arg-type]
    assert box.pause == 0.005
    gone[0] = True
    assert box.pause == 0.05


def test_a_message_that_mpi_may_not_send_at_once_counts_as_large(clock: Clock) -> None:
    MPI: Any = pytest.importorskip("mpi4py.MPI")
    box, taken = Mailbox(MPI.COMM_SELF, 23, Rung(clock)), Mailbox(MPI.COMM_SELF, 23)
    box.send(0, 23, Shutdown(0))
    assert not box._going
    box.send(0, 23, Left("a", 0, "failed", traceback="x" * 5000))
    assert len(box._going) == 1
    assert taken.receive(1.0) == Shutdown(0) and isinstance(taken.receive(1.0), Left)
    assert box.pause == 0.05 and not box._going


def test_one_look_finds_what_came_while_nobody_looked(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py.MPI")
    launcher = find_mpiexec()
    program = [sys.executable, str(PROGRAMS / "looked_once.py"), str(tmp_path), str(MESSAGES)]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    variables = {**os.environ, **launcher.environment(), "PYTHONPATH": paths}
    done = subprocess.run(launcher.command(2, program), env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "found.json").read_text()) == MESSAGES
