"""Each wait of the sums on the host is needed: without it they come out wrong, or a member says so."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainers.programs.cases import vector
from tests.trainers.support import late_messages
from trainers import Group, blocks_of
from trainers.reduce import horovod, overlap, ring
from trainers.reduce.adder import InOrder

IN_THE_RING = (
    "                sent.free(arrival.where)",
    "            self._neighbours.wait([self._pending.pop(where.start)])",
    "        self._neighbours.wait(list(self._pending.values()))",
    "                self._sent.free(self._course[self._begun].where)",
    "            self._neighbours.wait([pending])",
    "                return  # the previous trainer has yet to take what its place holds",
)
BESIDE = (
    "            ready()\n            self._sums",
    "                ready()\n                self._sums",
    "        self._stop()\n        if self._error",
    "            self._thread.join()",
    "        self._adder.complete()",
)
IN_HOROVOD = ("            self._await(under_way.handle)", "            self._hvd.synchronize(handle)")
SEGMENT, ELEMENTS = 64, 400
SPLITS = [(2, 2), (4, 4), (5, 3), (7, 2)]
SEEDS = range(4)


def without(module: ModuleType, line: str) -> Any:
    """The module with `pass` in the place of a line's first statement."""
    text = Path(str(module.__file__)).read_text()
    assert text.count(line) == 1, f"{module.__name__} has no line {line!r}"
    first, *others = line.split("\n")
    indent = first[: len(first) - len(first.lstrip())]
    made = ModuleType(module.__name__)
    made.__file__ = module.__file__
    exec(compile(text.replace(line, "\n".join([f"{indent}pass", *others])), str(module.__file__), "exec"), vars(made))
    return made


def ring_is_right(module: Any) -> bool:
    vars(module)["_SEGMENT"] = SEGMENT
    for seed, (ranks, members) in product(SEEDS, SPLITS):
        vectors = [vector(ELEMENTS, rank) for rank in range(ranks)]
        wanted = InOrder(Group.alone(), ranks, torch.device("cpu")).sum([each.clone() for each in vectors])
        got = late_messages.summed(module.VirtualRing, blocks_of(ranks, members), vectors, seed)
        if not all(isinstance(each, Tensor) and torch.equal(each, wanted) for each in got):
            return False
    return True


class Slow(InOrder):
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
        adder, vectors = Slow(), [torch.zeros(3) for _ in range(50)]

        def ready(adder: Slow = adder) -> None:
            adder.ready += 1

        made = module.Reduction(adder, beside)
        try:
            with made as reduction:
                for each in vectors:
                    reduction.start([each], ready)
                sums, _ = reduction.finish()
        except (AssertionError, RuntimeError):
            return False
        finally:
            made._tasks.put(None)  # a thread that nobody has ended
        right &= len(sums) == len(vectors) and all(bool((each == 1).all()) for each in sums)
    return right


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
    made = module.HorovodSum(Group.alone(), torch.device("cpu"))
    made._hvd, made._timeout = LateHorovod(), 10.0
    sums = [made.sum([torch.full((3,), 1.0, dtype=dtype), torch.ones(3, dtype=dtype)]) for dtype in TYPES]
    made.complete()
    return all(bool((each == 4).all()) for each in sums)


TYPES = (torch.float32, torch.bfloat16)


def test_with_all_waits_sums_are_right() -> None:
    assert ring_is_right(ring) and reduction_is_right(overlap) and horovod_is_right(horovod)


@pytest.mark.parametrize("line", IN_THE_RING)
def test_the_ring_needs_each(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_messages, "SECONDS", 2.0)
    assert not ring_is_right(without(ring, line))


@pytest.mark.parametrize("line", BESIDE)
def test_sums_beside_a_step_need_each(line: str) -> None:
    assert not reduction_is_right(without(overlap, line))


@pytest.mark.parametrize("line", IN_HOROVOD)
def test_sums_over_horovod_need_each(line: str) -> None:
    assert not horovod_is_right(without(horovod, line))
