"""Each wait inside the transports is needed: without it a message is used early, or a member's end is not heard of."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist

from tests.device.waits import OVER_MPI, OVER_TORCH, TORCH, text_of
from tests.trainers.support.without import made_of, without

BYTES = 1 << 20


@pytest.fixture(scope="module")
def over_mpi(mpi: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("waits")
    mpi(2, "waits_over_mpi.py", str(folder))
    return dict(json.loads((folder / "told.json").read_text()))


def test_with_all_waits_messages_over_mpi_are_right(over_mpi: dict[str, str]) -> None:
    assert over_mpi[""] == ""


@pytest.mark.parametrize("name", [mutant.name for mutant in OVER_MPI])
def test_each_over_mpi_is_needed(name: str, over_mpi: dict[str, str]) -> None:
    assert over_mpi[name]


@pytest.fixture(scope="module")
def groups() -> list[Any]:
    """The two ends of a process group."""
    made: Any = dist
    store = made.HashStore()
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda rank: made.ProcessGroupGloo(store, rank, 2, timedelta(seconds=60)), range(2)))


def is_right_over_torch(module: Any, groups: list[Any]) -> bool:
    """A message that goes once the other waits for it, or is through with that, is there when the wait ends."""
    ends = [object.__new__(module.TorchTransport) for _ in groups]
    for end, group in zip(ends, groups):
        end._group, end._tag, end.timeout, end.interrupted = group, 0, 60.0, False
    landing, waits = np.zeros(BYTES, np.uint8), Event()
    pending = ends[0].receive(1, landing)
    work, pending.work = pending.work, Signalling(pending.work, waits)
    sevens = np.full(BYTES, 7, np.uint8)

    def send() -> None:
        waits.wait(60.0)  # of the whole and the mutants; each goes on then
        ends[1].send(0, sevens).work.wait(timedelta(seconds=60.0))

    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send)
        ends[0].wait([pending])
        right = bool((landing == 7).all())
        if not waits.is_set():
            waits.set()
            work.wait()
        sent.result()
    return right


class Signalling:
    """A message under way that says when it is waited for."""

    def __init__(self, work: Any, waits: Event) -> None:
        self._work, self._waits = work, waits

    def wait(self, limit: timedelta) -> None:
        self._waits.set()
        self._work.wait(limit)


def test_with_all_waits_messages_over_torch_are_right(groups: list[Any]) -> None:
    assert is_right_over_torch(made_of(TORCH, text_of(TORCH)), groups)


@pytest.mark.parametrize("mutant", OVER_TORCH, ids=lambda mutant: mutant.name)
def test_each_over_torch_is_needed(mutant: Any, groups: list[Any]) -> None:
    assert not is_right_over_torch(without(mutant), groups)
