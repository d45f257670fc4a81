"""How the yardstick's processes end: what they left counts, and nobody waits for ever on a process that hangs."""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any

import psutil
import pytest
from torch import nn

from tests.commands.support.small_tasks import Small
from trainers.proof import ddp
from trainers.proof.ddp import DdpJob, ProcessFailed, train_with_ddp


class EndsNever(Small):
    """Its process has done all, and then waits for what never comes."""

    def __init__(self) -> None:
        atexit.register(threading.Event().wait)


class LeavesEarly(Small):
    """Its process ends as if all were well, before its first step."""

    def model(self) -> nn.Module:
        os._exit(0)


def job(task: type[Any]) -> DdpJob:
    return DdpJob(f"{__name__}:{task.__name__}", ranks=2, steps=2)


def test_processes_that_do_not_end_hold_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ddp, "_END_SECONDS", 0.5)
    assert train_with_ddp(job(EndsNever)).steps == 2
    assert not [child for child in psutil.Process().children() if "trainers.proof.ddp" in child.cmdline()]


def test_a_process_that_leaves_nothing_has_failed() -> None:
    with pytest.raises(ProcessFailed, match="exit code 0 without a word"):
        train_with_ddp(job(LeavesEarly))
