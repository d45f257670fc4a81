"""Rank 0's pulse: nobody trains on without it unseen."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from fleet.session.coordinator_rank import _pulse


class World:
    rank = 0

    def __init__(self) -> None:
        self.ended = threading.Event()

    def Abort(self, code: int) -> None:
        assert code == 1
        self.ended.set()


class TornMailbox:
    def send(self, rank: int, inbox: int, message: object) -> None:
        raise OSError("no way to rank 1")

    def flush(self) -> None: ...


def test_a_pulse_that_fails_ends_the_run() -> None:
    world = World()
    places = SimpleNamespace(trainers=[SimpleNamespace(rank=1)])
    rank: Any = SimpleNamespace(
        cluster=places, runtime=SimpleNamespace(timeout=0.04), world=world, mailbox=lambda inbox: TornMailbox()
    )
    with _pulse(rank):
        assert world.ended.wait(10.0)
