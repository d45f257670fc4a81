"""Each wait of the sums on the host is needed: without it they come out wrong, or a member says so."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.device.waits import BESIDE_STEPS, IN_HOROVOD, IN_THE_RING, OF_MESSAGES, Mutant
from tests.trainers.programs.cases import vector
from tests.trainers.support import late_messages
from tests.trainers.support.without import without
from trainers import Group, blocks_of
from trainers.reduce.ordered_reduce import OrderedReduce

SEGMENT, ELEMENTS = 64, 400
SPLITS = [(2, 2), (4, 4), (5, 3), (7, 2)]
SEEDS = range(4)


def ring_is_right(module: Any) -> bool:
    vars(module)["_SEGMENT"] = SEGMENT
    for seed, (ranks, members) in product(SEEDS, SPLITS):
        vectors = [vector(ELEMENTS, rank) for rank in range(ranks)]
        wanted = OrderedReduce(Group.alone(), ranks, torch.device("cpu")).sum([each.clone() for each in vectors])
        got = late_messages.summed(module.VirtualRing, blocks_of(ranks, members), vectors, seed)
        if not all(isinstance(each, Tensor) and torch.equal(each, wanted) for each in got):
            return False
    return True


class Slow(OrderedReduce):
    """Has its sums only when they are complete, and none before it was told that their vectors are ready."""

    def __init__(self) -> None:
        super().__init__(Group.alone(), 2, torch.device("cpu"))
        self.ready, self.begun = 0, list[Tensor]()

    def sum(self, vectors: Any) -> Tensor:
        assert self.ready > len(self.begun), "the vectors are not ready"
        torch.manual_seed(sum(range(20_000)))  # takes its time
        self.begun.append(vectors[0])
        return self.begun[-1]

    def complete(self) -> None:
        for total in self.begun:
            total.add_(1)


def reduction_is_right(module: Any) -> bool:
    right = True
    for beside in (False, True):
        reducer, vectors = Slow(), [torch.zeros(3) for _ in range(50)]

        def ready(reducer: Slow = reducer) -> None:
            reducer.ready += 1

        made = module.Reduction(reducer, beside)
        try:
            with made as reduction:
                for each in vectors:
                    reduction.start([each], ready)
                sums, _ = reduction.finish()
        except (AssertionError, RuntimeError):
            return False
        finally:
            made._tasks.put(None)  # a thread that nobody has ended
        right &= (
            _ends_with_an_error(module, beside)
            and len(sums) == len(vectors)
            and all(bool((each == 1).all()) for each in sums)
        )
    return right


def _ends_with_an_error(module: Any, beside: bool) -> bool:
    """Whether a step that fails leaves no thread of its sums."""
    reducer = Slow()
    reducer.ready = 1
    made = module.Reduction(reducer, beside)
    try:
        with made as reduction:
            reduction.start([torch.zeros(3)])
            raise ArithmeticError
    except (ArithmeticError, AssertionError):
        alive = made._thread is not None and made._thread.is_alive()
    made._tasks.put(None)
    return not alive


class LateHorovod:
    """Adds as two members would, and only when it is waited for as Horovod asks."""

    Sum = "sum"

    def __init__(self) -> None:
        self._polled: dict[int, int] = {}
        self._staged: list[Tensor] = []

    def allreduce_async_(self, tensor: Tensor, name: str, op: str) -> int:
        self._staged.append(tensor)
        return len(self._staged) - 1

    def poll(self, handle: int) -> bool:
        self._polled[handle] = self._polled.get(handle, 0) + 1
        return self._polled[handle] > 2

    def synchronize(self, handle: int) -> None:
        self._staged[handle].mul_(2 if self._polled.get(handle, 0) > 2 else float("nan"))


def horovod_is_right(module: Any) -> bool:
    made = module.HorovodReduce(Group.alone(), torch.device("cpu"))
    made._hvd, made._timeout = LateHorovod(), 10.0
    sums = [made.sum([torch.full((3,), 1.0, dtype=dtype), torch.ones(3, dtype=dtype)]) for dtype in TYPES]
    made.complete()
    begun: list[bool] = []
    try:
        made._within(10.0, "start", lambda: begun.append(bool(torch.manual_seed(sum(range(2_000_000))))))
    except module.HorovodHangs:
        return False
    return begun == [True] and all(bool((each == 4).all()) for each in sums)


def messages_are_right(module: Any) -> bool:
    """Between two members, one of whom is late."""
    late = late_messages.LateTransport()
    landing, sent = np.zeros(4, np.uint8), np.full(4, 7, np.uint8)
    if hasattr(module, "GroupNeighbours"):
        beside = module.GroupNeighbours(late)
        beside.wait([beside.receive(incoming := torch.zeros(4))])
        right = bool((incoming.view(torch.uint8) == 7).all())
        beside.wait([beside.send(torch.from_numpy(sent))])
    else:
        module.exchange(late, [], [(1, landing)])
        right = bool((landing == 7).all())
        module.exchange(late, [(1, sent)], [])
    return right and late.all_over


TYPES = (torch.float32, torch.bfloat16)


CHECKS: dict[str, tuple[tuple[Mutant, ...], Callable[[Any], bool]]] = {
    "ring": (IN_THE_RING, ring_is_right),
    "beside": (BESIDE_STEPS, reduction_is_right),
    "horovod": (IN_HOROVOD, horovod_is_right),
    "messages": (OF_MESSAGES, messages_are_right),
}
CASES = [pytest.param(mutant, check, id=mutant.name) for mutants, check in CHECKS.values() for mutant in mutants]


def test_with_all_waits_sums_are_right() -> None:
    assert all(check(importlib.import_module(mutants[0].module)) for mutants, check in CHECKS.values())
    assert all(messages_are_right(importlib.import_module(mutant.module)) for mutant in OF_MESSAGES)


@pytest.mark.parametrize(("mutant", "check"), CASES)
def test_each_is_needed(mutant: Mutant, check: Callable[[Any], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_messages, "SECONDS", 2.0)
    assert not check(without(mutant))
