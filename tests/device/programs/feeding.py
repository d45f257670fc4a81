"""A trainer's feed on a device that is not the first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from typing import Any

import torch
import torch_rig
from torch import Tensor

from fleet.workers import feed as feed_module
from fleet.workers.feed import EpochEnd, HeldOutBatch, ReadAhead, Reading, StepBatches
from preprocess.samples.order import HELD_OUT
from tests.workers import test_own_feed
from tests.workers.test_feed import feeds

EPOCHS = 2
DEVICE = torch.device("rig", 1)


class Held(ReadAhead):
    """Whose maker goes on only when the first item has been fetched."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        wait([self._next])


def epochs(schedule: str, held: bool, patient: bool) -> dict[str, Any]:
    """Read two epochs; return how many batches came wrong, and counts.

    held: the thread that reads ahead is faster than the feed's making. patient: look at each batch only at the end.
    """
    torch_rig.schedule(schedule)
    torch.accelerator.set_device_index(1)
    if held:
        vars(feed_module)["ReadAhead"] = Held
    torch_rig.counts()
    with feeds(4, 1, Reading(), device=torch.device("rig", 1)) as (feed,):
        checks: list[Callable[[], bool]] = []
        wrong = ends = 0
        while ends < EPOCHS:
            item = feed.next()
            ends += isinstance(item, EpochEnd)
            for batch in _batches(item):
                checks.append(_check(*batch))
                if not patient:
                    wrong += not checks.pop()()
            del item
        wrong += sum(not check() for check in checks)
    counts = torch_rig.counts()
    told = {name: counts.get(name, 0) for name in ("stream waits", "record_streams", "pageable copies", "d2h")}
    return {"wrong": wrong, "threads": threading.active_count(), **told}


def own_substitutes(schedule: str) -> list[bool]:
    """Read epochs in which samples cannot be made, of jobs with parts; return which of them get what is theirs."""
    torch_rig.schedule(schedule)
    torch.accelerator.set_device_index(1)
    found = []
    for own, held_out in ((test_own_feed.REST, test_own_feed.FOLD), (test_own_feed.FOLD, test_own_feed.REST)):
        job, epoch = test_own_feed.Trained(own, held_out, workers=2), 1
        with test_own_feed.feeds([job], 40, epoch, Reading(), test_own_feed.TORN, DEVICE) as [[feed]]:
            read = test_own_feed.Read({0: [], 1: []}, [])
            test_own_feed.read_all(feed, range(2), threading.Barrier(1), read)
        data = test_own_feed.opened(test_own_feed.TORN)
        evaluated = [test_own_feed.looked_at(data, HELD_OUT, 0, sample, held_out) for sample in held_out]
        found.append(read.turns == job.expected(epoch, test_own_feed.TORN))
        found.append(read.evaluated == evaluated * test_own_feed.EPOCHS)
    return found


def harmed(schedule: str) -> bool:
    """Whether batches come wrong, or by another way than they should; the feed's thread works on its device alone."""
    torch_rig.schedule(schedule)
    told = epochs(schedule, False, True)
    seen: list[Any] = []

    def items() -> Iterator[Any]:
        while True:
            seen.append(torch.accelerator.current_stream(DEVICE) == torch_rig.device_module.default_stream(DEVICE))
            yield None

    ahead = ReadAhead(items(), lambda _: (), DEVICE, closed := threading.Event())
    ahead.next(10.0)
    selected = ahead._executor.submit(torch.accelerator.current_device_index).result()
    closed.set()
    ahead.close()
    wrong_way = told["pageable copies"] > told["d2h"] or any(seen) or selected != DEVICE.index
    return bool(told["wrong"] or wrong_way or _reads_on_when_closed())


def _reads_on_when_closed() -> bool:
    """Whether a thread still makes an item when its reader has been closed."""
    closed, made = threading.Event(), list[bool]()

    def items() -> Iterator[Any]:
        closed.wait(10.0)
        torch.manual_seed(sum(range(2_000_000)))  # takes its time
        made.append(True)
        yield None

    ahead = ReadAhead(items(), lambda _: (), DEVICE, closed)
    closed.set()
    ahead.close()
    return not made


def _batches(item: Any) -> list[Any]:
    if isinstance(item, StepBatches):
        return list(item.batches)
    return [item.batch] if isinstance(item, HeldOutBatch) else []


def _check(inputs: Tensor, targets: Tensor) -> Callable[[], bool]:
    """Begin to use a batch as a step does; return what looks at the result."""
    used, wanted = inputs * 1, targets * 1
    return lambda: torch.equal(used.cpu()[:, 0, 0, 0].long(), wanted.cpu())
