"""Which stacks of ranks that do not move say that the rank waits for others."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Sequence

import torch
from torch import Tensor

from fleet.workers.watchdog import waits_for_others
from trainers import Group
from trainers.reduce.ordered_reduce import OrderedReduce
from trainers.reduce.reduction import Reduction

SECONDS = 30.0


class Watched(OrderedReduce):
    """Looks, while it adds beside a step, where the step's thread is at its end."""

    def __init__(self) -> None:
        super().__init__(Group.alone(), 1, torch.device("cpu"))
        self.step, self.stack = threading.get_ident(), ""

    def sum(self, vectors: Sequence[Tensor]) -> Tensor:
        end = time.monotonic() + SECONDS
        while "in finish" not in self.stack and time.monotonic() < end:
            self.stack = "".join(traceback.format_stack(sys._current_frames()[self.step]))
        return super().sum(vectors)


def test_a_step_whose_sums_are_taken_beside_it_waits_for_others() -> None:
    reducer = Watched()
    with Reduction(reducer, beside=True) as reduction:
        reduction.start([torch.ones(3)])
        reduction.finish()
    assert "in finish" in reducer.stack and waits_for_others(reducer.stack)


def test_a_thread_that_computes_waits_for_nobody() -> None:
    assert not waits_for_others("".join(traceback.format_stack()))
