"""How often a rank looks whether a message has come: the longer none did, the less often."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleet.coordination import mailbox
from fleet.coordination.mailbox import Mailbox
from fleet.coordination.protocol import Shutdown
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


def test_one_look_finds_what_came_while_nobody_looked(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py.MPI")
    launcher = find_mpiexec()
    program = [sys.executable, str(PROGRAMS / "looked_once.py"), str(tmp_path), str(MESSAGES)]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    variables = {**os.environ, **launcher.environment(), "PYTHONPATH": paths}
    done = subprocess.run(launcher.command(2, program), env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "found.json").read_text()) == MESSAGES
