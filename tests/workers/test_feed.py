"""A trainer's batches: the right samples, in place where that is safe, one step ahead where a device copies them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from fleet.workers import feed as feeding
from fleet.workers.feed import BatchFeed, EpochEnd, HeldOutBatch, ReadAhead, Reading, Share, StepBatches, TimedOut
from preprocess import Dataset, DatasetSpec, SourceSpec
from preprocess.making.preprocessor import Preprocessor
from preprocess.ring.lane_memory import RingShape
from preprocess.ring.ring import Ring
from preprocess.samples.stream import LaneSchedule, LaneSpec, StreamKey
from trainers import BatchPlan

SAMPLES, HELD_OUT, SLOT, BATCH = 50, 11, 4, 3
CPU = torch.device("cpu")


class Numbers:
    """Images whose pixels are the sample's number."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return np.full((3, 2, 1), index, np.uint8), index


@contextmanager
def feeds(
    workers: int, members: int, reading: Reading, lane_samples: int = 40, device: torch.device = CPU
) -> Iterator[list[BatchFeed]]:
    """The feeds of a group's members, on a lane that a preprocessor in a thread fills."""
    dataset = Dataset(DatasetSpec("numbers", SourceSpec(Numbers(SAMPLES)), SourceSpec(Numbers(HELD_OUT))))
    plan = BatchPlan(SAMPLES, workers, BATCH)
    schedule = LaneSchedule(SAMPLES, plan.padded - SAMPLES, HELD_OUT)
    ring = Ring.forked(RingShape(1, 4096, SLOT, members, 1))
    lane = ring.lanes[0]
    lane.open(dataset.layout, range(members), 1, samples=lane_samples)
    preprocessor = Preprocessor(ring, 0, {"numbers": dataset})
    readers = tuple(range(members))
    preprocessor.open_lane(LaneSpec(0, 1, StreamKey("numbers", 7, 0), schedule, dataset.layout, {0: readers}))
    done = threading.Event()

    def fill() -> None:
        while not done.is_set():
            if not preprocessor.step():
                preprocessor.wait(0.05)

    thread = threading.Thread(target=fill)
    thread.start()
    blocks = np.array_split(np.arange(workers), members)
    made = []
    for member, block in enumerate(blocks):
        share = Share(plan, range(int(block[0]), int(block[-1]) + 1), member, tuple(range(members)), BATCH)
        reader = lane.reader(member, dataset.layout, 1)
        made.append(BatchFeed(reader, schedule, share, (0, 0), device, reading, timeout=10.0))
    try:
        yield made
    finally:
        for feed in made:
            feed.close()
        done.set()
        thread.join()


def expected(workers: int, epoch: int) -> np.ndarray:
    """The samples of each virtual worker, (workers, samples)."""
    generator = torch.Generator()
    generator.manual_seed(7 + epoch)
    order = torch.randperm(SAMPLES, generator=generator).numpy()
    padded = np.resize(order, -(-SAMPLES // workers) * workers)
    return padded.reshape(-1, workers).T


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(("workers", "members"), [(1, 1), (4, 1), (5, 2), (3, 3)])
def test_every_virtual_worker_gets_its_samples(workers: int, members: int, in_place: bool) -> None:
    with feeds(workers, members, Reading(in_place=in_place)) as all_feeds:
        for epoch in range(2):
            got: dict[int, list[int]] = {rank: [] for rank in range(workers)}
            evaluated: list[int] = []
            ended = [False] * members
            while not all(ended):
                for member, feed in enumerate(all_feeds):
                    if ended[member]:
                        continue
                    item = feed.next()
                    if isinstance(item, StepBatches):
                        first = min(np.array_split(np.arange(workers), members)[member])
                        for place, batch in enumerate(item.batches):
                            inputs, targets = batch() if callable(batch) else batch
                            assert torch.equal(inputs[:, 0, 0, 0].long(), targets)
                            got[first + place] += targets.tolist()
                    elif isinstance(item, HeldOutBatch):
                        evaluated += item.batch[1].tolist()
                    ended[member] = isinstance(item, EpochEnd)
            assert [got[rank] for rank in range(workers)] == expected(workers, epoch).tolist()
            assert sorted(evaluated) == list(range(HELD_OUT))


def test_batches_lie_in_the_ring_only_where_that_is_safe() -> None:
    for in_place in (True, False):
        with feeds(2, 1, Reading(in_place=in_place)) as (feed,):
            item = feed.next()
            assert isinstance(item, StepBatches)
            first, again = (batch()[0] for batch in (item.batches[0], item.batches[0]))  # type: ignore[operator]
            assert (first.data_ptr() == again.data_ptr()) == in_place
            targets = item.batches[0]()[1]  # type: ignore[operator]
            assert targets.data_ptr() != item.batches[0]()[1].data_ptr(), "losses may write to targets"  # type: ignore[operator]


def test_a_rehearsal_looks_at_no_sample() -> None:
    with feeds(2, 1, Reading(gather=False)) as (feed,):
        item = feed.next()
        assert isinstance(item, StepBatches)
        inputs, targets = item.batches[1]()  # type: ignore[operator]
        assert inputs.numel() == 0 and len(targets) == BATCH


def nothing(item: object) -> Iterator[torch.Tensor]:
    return iter(())


def test_one_item_is_fetched_ahead_and_no_more() -> None:
    fetched, closed = threading.Semaphore(0), threading.Event()

    def items() -> Iterator[int]:
        for number in range(100):
            fetched.release()
            yield number

    ahead = ReadAhead(items(), nothing, CPU, closed)
    assert [ahead.next(5.0) for _ in range(3)] == [0, 1, 2]
    for _ in range(4):
        assert fetched.acquire(timeout=5.0)
    closed.set()
    ahead.close()
    assert not fetched.acquire(blocking=False)


def test_what_fetching_raises_comes_with_its_item() -> None:
    def items() -> Iterator[int]:
        yield 0
        raise TimeoutError("nobody made it")

    closed = threading.Event()
    ahead = ReadAhead(items(), nothing, CPU, closed)
    assert ahead.next(5.0) == 0
    with pytest.raises(TimeoutError, match="nobody made it"):
        ahead.next(5.0)
    closed.set()
    ahead.close()


def test_wait_for_an_item_is_bounded() -> None:
    go, closed = threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        go.wait(10.0)
        yield 0

    ahead = ReadAhead(items(), nothing, CPU, closed)
    with pytest.raises(TimedOut):
        ahead.next(0.05)
    go.set()
    closed.set()
    ahead.close()


class Prompt(ThreadPoolExecutor):
    """Has done what it was given before it goes on, as if samples lay ready and whoever gave it were held up."""

    def submit(self, *given: Any, **named: Any) -> Any:
        future = super().submit(*given, **named)
        wait([future])
        return future


def test_a_feed_is_whole_before_its_thread_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "ThreadPoolExecutor", Prompt)
    with feeds(2, 1, Reading()) as (feed,):
        assert isinstance(feed.next(), StepBatches)
