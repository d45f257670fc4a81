"""How members hear of one that is gone, and what that costs them; stand-ins count what is asked of MPI and of torch."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

from trainers import Group
from trainers.messages import device_channel
from trainers.messages.device_channel import DeviceChannel


class Ended:
    """A process group that notes who aborts it, and in which thread it goes away."""

    def __init__(self, aborted: list[str], gone: list[str], is_gone: threading.Event) -> None:
        self._aborted, self._gone, self._is_gone = aborted, gone, is_gone

    def abort(self) -> None:
        self._aborted.append(threading.current_thread().name)

    def __del__(self) -> None:
        self._gone.append(threading.current_thread().name)
        self._is_gone.set()


class Nobody:
    """A transport without messages."""

    index, size, names, timeout, interrupted = 0, 2, (0, 1), 5.0, False

    def check(self) -> None:
        return


def test_who_aborts_does_not_wait_for_the_threads_of_its_communicator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages end at once; who lets go of a process group waits for its threads, gloo's for 20 ms."""
    aborted: list[str] = []
    gone: list[str] = []
    is_gone = threading.Event()
    monkeypatch.setattr(device_channel, "_communicator", lambda *_: (Ended(aborted, gone, is_gone), False))
    monkeypatch.setattr(DeviceChannel, "_begun", lambda *_: [])
    transport: Any = Nobody()
    channel = DeviceChannel("host:1/0", transport, torch.device("cpu"))
    channel._first[1] = 1  # as if the other's message had come
    channel.met()
    channel.abort()
    channel.abort()
    assert is_gone.wait(5.0)
    assert aborted == [threading.current_thread().name] and gone == ["parting"]


class Counting(Nobody):
    """The master's end; counts its waits."""

    any_thread = True

    def __init__(self) -> None:
        self.waits = 0

    def send(self, peer: int, memory: np.ndarray) -> int:
        return memory.nbytes

    def wait(self, pending: Any) -> float:
        self.waits += 1
        return 0.0


@pytest.mark.parametrize(("size", "most"), [(1000, 1), (3 << 20, 50)])
def test_a_checkpoint_s_small_arrays_go_to_the_members_together(size: int, most: int) -> None:
    """Each wait for another member may be long where processors do much else; large arrays go on as they come."""
    transport: Any = Counting()
    group, least = Group(transport, (0, 1)), 2
    group.bcast_tree({str(number): torch.zeros(size, dtype=torch.uint8) for number in range(50)})
    assert transport.waits == least + most
