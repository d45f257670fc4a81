"""Batches of jobs that take parts of one stream: their own samples and no others, however small the ring is."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from fleet.run.ranks.feed import BatchFeed, EpochEnd, HeldOutBatch, Reading, Share, StepBatches
from preprocess import (
    Dataset,
    DatasetSpec,
    Itinerary,
    LaneSpec,
    MemberOrder,
    Preprocessor,
    Ring,
    RingShape,
    SourceSpec,
    StreamKey,
)
from trainers import BatchPlan

SAMPLES, SLOT, SEED, EPOCHS = 50, 4, 7, 3
CPU = torch.device("cpu")


class Numbers:
    """Images whose pixels are the sample's number."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return np.full((3, 2, 1), index, np.uint8), index


@dataclass(frozen=True)
class Trained:
    """A job on one lane with others: its own samples (None: all), those held out, and how it is trained."""

    own: tuple[int, ...] | None
    held_out: tuple[int, ...] = ()
    workers: int = 1
    batch: int = 3
    members: int = 1
    step: int = 0  # at which it comes, in the first epoch

    @property
    def order(self) -> MemberOrder | None:
        return None if self.own is None else MemberOrder(np.array(self.own), SAMPLES, SEED)

    @property
    def plan(self) -> BatchPlan:
        return BatchPlan(SAMPLES if self.own is None else len(self.own), self.workers, self.batch)

    def shares(self) -> list[Share]:
        blocks = np.array_split(np.arange(self.workers), self.members)
        held_out, evaluators = np.array(self.held_out, np.int64), tuple(range(self.members))
        return [
            Share(self.plan, range(block[0], block[-1] + 1), member, evaluators, 3, self.order, held_out)
            for member, block in enumerate(blocks)
        ]

    def expected(self, first_epoch: int) -> dict[int, list[int]]:
        """The samples of each virtual worker, from the step on at which it comes."""
        found: dict[int, list[int]] = {rank: [] for rank in range(self.workers)}
        for epoch in range(first_epoch, first_epoch + EPOCHS):
            order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(SEED + epoch)).tolist()
            mine = [sample for sample in order if self.own is None or sample in self.own]
            padded = np.resize(mine, self.plan.padded).tolist()
            start = self.step * self.workers * self.batch if epoch == first_epoch else 0
            for rank in found:
                found[rank] += padded[start + rank :: self.workers]
        return found


def begin(job: Trained, epoch: int) -> tuple[int, int]:
    """Its place in the stream, and how far the epoch must reach into its order again."""
    number, order = job.step * job.workers * job.batch, job.order
    if order is None:
        return number, job.plan.padded - SAMPLES
    return int(order.padded_places(epoch, job.plan.padded)[number]), order.tail(epoch, job.plan.padded)


@contextmanager
def feeds(jobs: Sequence[Trained], lane_samples: int, epoch: int, reading: Reading) -> Iterator[list[list[BatchFeed]]]:
    """The feeds of all members of all jobs, on one lane that a preprocessor in a thread fills."""
    source = SourceSpec(Numbers())
    dataset = Dataset(DatasetSpec("numbers", source, source))
    places, tails = zip(*(begin(job, epoch) for job in jobs))
    itinerary = Itinerary(SAMPLES, max(tails), SAMPLES, epoch, min(places))
    count = sum(job.members for job in jobs)
    ring = Ring.forked(RingShape(1, 4096, SLOT, count, 1))
    lane = ring.lanes[0]
    lane.open(dataset.layout, range(count), 1, samples=lane_samples)
    preprocessor = Preprocessor(ring, 0, {"numbers": dataset})
    readers = tuple(range(count))
    preprocessor.open_lane(LaneSpec(0, 1, StreamKey("numbers", SEED, epoch), itinerary, dataset.layout, (readers,)))
    done = threading.Event()

    def fill() -> None:
        while not done.is_set():
            if not preprocessor.step():
                preprocessor.wait(0.05)

    thread = threading.Thread(target=fill)
    thread.start()
    numbers = iter(readers)
    made = [
        [
            BatchFeed(
                lane.reader(next(numbers), dataset.layout, 1), itinerary, share, (epoch, job.step), CPU, reading,
                timeout=20.0,
            )
            for share in job.shares()
        ]
        for job in jobs
    ]  # fmt: skip
    try:
        yield made
    finally:
        for feed in (feed for group in made for feed in group):
            feed.close()
        done.set()
        thread.join()


@dataclass
class Read:
    """What one member of a job got."""

    turns: dict[int, list[int]]
    evaluated: list[int]


def read_all(feed: BatchFeed, block: range, barrier: threading.Barrier, into: Read) -> None:
    """Read all epochs; members of a group wait for each other after each step, as trainers do."""
    ended = 0
    while ended < EPOCHS:
        item = feed.next()
        if isinstance(item, StepBatches):
            for rank, batch in zip(block, item.batches):
                inputs, targets = batch() if callable(batch) else batch
                assert torch.equal(inputs[:, 0, 0, 0].long(), targets)
                into.turns[rank] += targets.tolist()
            barrier.wait(60)
        elif isinstance(item, HeldOutBatch):
            into.evaluated += item.batch[1].tolist()
        else:
            assert isinstance(item, EpochEnd)
            ended += 1
            barrier.wait(60)
    feed.close()


FOLD = tuple(range(0, SAMPLES, 5))
REST = tuple(sample for sample in range(SAMPLES) if sample not in FOLD)
FEW = (3, 17, 44)


@pytest.mark.parametrize("lane_samples", [16, 40])
@pytest.mark.parametrize(
    "jobs",
    [
        (Trained(REST, FOLD, workers=3),),
        (Trained(FEW, workers=4, members=2),),
        (Trained(None, workers=4), Trained(REST, FOLD, workers=3, members=3), Trained(FEW, workers=2)),
        (Trained(FOLD, REST, workers=4, batch=2, members=2), Trained(REST, workers=4, batch=2, members=2)),
    ],
)
def test_jobs_get_their_own_samples_of_one_lane(jobs: Sequence[Trained], lane_samples: int) -> None:
    check(jobs, lane_samples, epoch=1)


@pytest.mark.parametrize("lane_samples", [16, 40])
def test_jobs_that_come_in_the_midst_of_an_epoch_get_the_rest_of_it(lane_samples: int) -> None:
    jobs = (
        Trained(REST, FOLD, workers=3, members=2, step=4),
        Trained(FOLD, workers=4, batch=1, step=2),
        Trained(None, workers=4, step=3),
    )
    check(jobs, lane_samples, epoch=2)


def check(jobs: Sequence[Trained], lane_samples: int, epoch: int) -> None:
    with feeds(jobs, lane_samples, epoch, Reading()) as groups:
        threads, read = [], []
        for job, group in zip(jobs, groups):
            barrier = threading.Barrier(job.members)
            mine = [Read({rank: [] for rank in share.block}, []) for share in job.shares()]
            read.append(mine)
            for feed, share, into in zip(group, job.shares(), mine):
                threads.append(threading.Thread(target=read_all, args=(feed, share.block, barrier, into), daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    for job, members in zip(jobs, read):
        assert {rank: got for one in members for rank, got in one.turns.items()} == job.expected(epoch)
        assert sorted(sample for one in members for sample in one.evaluated) == sorted(job.held_out * EPOCHS)


def test_a_rehearsal_looks_at_no_sample_of_a_part() -> None:
    with feeds([Trained(REST, workers=2)], 16, 0, Reading(gather=False)) as [[feed]]:
        item = feed.next()
        assert isinstance(item, StepBatches)
        assert [(len(inputs), len(targets)) for inputs, targets in item.batches] == [(0, 3), (0, 3)]  # type: ignore[misc]
