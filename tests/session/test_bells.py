"""Bells that wake who waits for a message."""

from __future__ import annotations

import multiprocessing
import threading
import time

import pytest

from fleet.coordination.protocol import TO_COORDINATOR, TO_KEEPER, TO_TRAINER
from fleet.workers.rank import Bells


def test_a_bell_is_of_one_inbox_of_one_rank() -> None:
    bells = Bells.alone(ranks=(4, 6))
    for rank, inbox in ((4, TO_KEEPER), (6, TO_TRAINER), (5, TO_TRAINER)):
        bells.ring(rank, inbox)
    assert not bells.wait(TO_TRAINER, 0.0) and not bells.wait(TO_COORDINATOR, 0.0)
    assert bells.wait(TO_KEEPER, 0.0) and not bells.wait(TO_KEEPER, 0.0)


def test_rings_before_a_wait_are_heard_once() -> None:
    bells = Bells.alone()
    for _ in range(3):
        bells.ring(0, TO_TRAINER)
    assert bells.wait(TO_TRAINER, 60.0) and not bells.wait(TO_TRAINER, 0.0)


def _wait(bells: Bells, ready: object, heard: object) -> None:
    ready.set()  # type: ignore[attr-defined]
    if bells.wait(TO_TRAINER, 60.0):
        heard.set()  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_who_waits_is_woken(kind: str) -> None:
    bells, begin = Bells.alone(), time.monotonic()
    context = multiprocessing.get_context("fork")
    ready, heard = (context.Event(), context.Event()) if kind == "process" else (threading.Event(), threading.Event())
    make = context.Process if kind == "process" else threading.Thread
    waiting = make(target=_wait, args=(bells, ready, heard), daemon=True)
    waiting.start()
    assert ready.wait(30.0)
    bells.ring(0, TO_TRAINER)
    assert heard.wait(30.0) and time.monotonic() - begin < 50.0
    waiting.join(30.0)
