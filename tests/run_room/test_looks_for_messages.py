"""How often a rank looks whether a message has come: the longer none did, the less often."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.coordination import mailbox
from fleet.coordination.mailbox import Mailbox
from fleet.coordination.protocol import Shutdown


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
