"""Batches of jobs that take parts of one stream: their own samples and no others, however small the ring is."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from fleet.workers.feed import BatchFeed, EpochEnd, HeldOutBatch, Reading, Share, StepBatches
from preprocess import Dataset, DatasetSpec, SourceSpec
from preprocess.making.preprocessor import Preprocessor
from preprocess.ring.lane_memory import RingShape
from preprocess.ring.ring import Ring
from preprocess.samples.order import HELD_OUT, TRAIN, Mask, mask_of
from preprocess.samples.part import MemberOrder
from preprocess.samples.stream import LaneSchedule, LaneSpec, StreamKey
from trainers import BatchPlan

SAMPLES, SLOT, SEED, EPOCHS = 50, 4, 7, 3
MAKING = threading.Lock()
"""A process makes one sample at a time; here threads stand for processes."""
CPU = torch.device("cpu")


class Numbers:
    """Images whose pixels are the sample's number; those that are torn cannot be read."""

    def __init__(self, torn: Sequence[int] = ()) -> None:
        self._torn = frozenset(torn)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        if index in self._torn:
            raise OSError(f"sample {index} is torn")
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

    def expected(self, first_epoch: int, torn: Sequence[int] = ()) -> dict[int, list[int]]:
        """The samples of each virtual worker, from the step on at which it comes."""
        data = opened(torn)
        found: dict[int, list[int]] = {rank: [] for rank in range(self.workers)}
        for epoch in range(first_epoch, first_epoch + EPOCHS):
            order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(SEED + epoch)).tolist()
            mine = [sample for sample in order if self.own is None or sample in self.own]
            mine = [looked_at(data, TRAIN, epoch, sample, self.own) for sample in mine]
            padded = np.resize(mine, self.plan.padded).tolist()
            start = self.step * self.workers * self.batch if epoch == first_epoch else 0
            for rank in found:
                found[rank] += padded[start + rank :: self.workers]
        return found


def opened(torn: Sequence[int]) -> Dataset:
    """The data set, all of whose samples are held-out ones, too."""
    source = SourceSpec(Numbers(torn))
    return Dataset(DatasetSpec("numbers", source, source, on_corrupt="skip"))


def looked_at(data: Dataset, kind: str, epoch: int, sample: int, own: Sequence[int] | None) -> int:
    """What a network with a part gets for a sample."""
    inputs, targets = data.layout.empty(1)
    data.make(kind, SEED, epoch, sample, inputs[0], targets, own=None if own is None else mask(own))
    return int(targets[0])


def mask(own: Sequence[int]) -> Mask:
    return mask_of(np.array(own, np.int64), SAMPLES)


def begin(job: Trained, epoch: int) -> tuple[int, int]:
    """Its place in the stream, and how far the epoch must reach into its order again."""
    number, order = job.step * job.workers * job.batch, job.order
    if order is None:
        return number, job.plan.padded - SAMPLES
    return int(order.padded_places(epoch, job.plan.padded)[number]), order.tail(epoch, job.plan.padded)


@contextmanager
def feeds(
    jobs: Sequence[Trained],
    lane_samples: int,
    epoch: int,
    reading: Reading,
    torn: Sequence[int] = (),
    device: torch.device = CPU,
) -> Iterator[list[list[BatchFeed]]]:
    """The feeds of all members of all jobs, on one lane that a preprocessor in a thread fills."""
    dataset, again = opened(torn), opened(torn)
    places, tails = zip(*(begin(job, epoch) for job in jobs))
    schedule = LaneSchedule(SAMPLES, max(tails), SAMPLES, epoch, min(places))
    count = sum(job.members for job in jobs)
    ring = Ring.forked(RingShape(1, 4096, SLOT, count, 1))
    lane = ring.lanes[0]
    lane.open(dataset.layout, range(count), 1, samples=lane_samples)
    preprocessor = Preprocessor(ring, 0, {"numbers": dataset})
    readers = tuple(range(count))
    preprocessor.open_lane(LaneSpec(0, 1, StreamKey("numbers", SEED, epoch), schedule, dataset.layout, {0: readers}))
    done = threading.Event()

    def fill() -> None:
        while not done.is_set():
            with MAKING:
                made = preprocessor.step()
            if not made:
                preprocessor.wait(0.05)

    thread = threading.Thread(target=fill)
    thread.start()
    numbers = iter(readers)
    made = [
        [
            BatchFeed(
                lane.reader(next(numbers), dataset.layout, 1), schedule, share, (epoch, job.step), device, reading,
                20.0, partial(make_again, again),
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


def make_again(data: Dataset, kind: str, epoch: int, *where: Any) -> None:
    with MAKING:
        data.make_substitute(kind, SEED, epoch, *where)


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


TORN = (0, 3, 5, 6, 20, 21, 22, 35, 49)


@pytest.mark.parametrize("lane_samples", [16, 40])
def test_what_cannot_be_made_is_replaced_by_samples_of_each_job_s_own(lane_samples: int) -> None:
    jobs = (
        Trained(REST, FOLD, workers=3, members=2),
        Trained(FOLD, REST, workers=4, batch=2, members=2),
        Trained(FEW, workers=4, members=2),
        Trained(None, FOLD, workers=4),
    )
    check(jobs, lane_samples, 1, TORN)
    later = [replace(job, step=1) for job in jobs[:2]]
    check(later, lane_samples, 2, TORN)


def check(jobs: Sequence[Trained], lane_samples: int, epoch: int, torn: Sequence[int] = ()) -> None:
    data = opened(torn)
    with feeds(jobs, lane_samples, epoch, Reading(), torn) as groups:
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
        assert {rank: got for one in members for rank, got in one.turns.items()} == job.expected(epoch, torn)
        evaluated = [looked_at(data, HELD_OUT, 0, sample, job.held_out) for sample in job.held_out]
        assert sorted(sample for one in members for sample in one.evaluated) == sorted(evaluated * EPOCHS)


def test_a_rehearsal_looks_at_no_sample_of_a_part() -> None:
    with feeds([Trained(REST, workers=2)], 16, 0, Reading(gather=False)) as [[feed]]:
        item = feed.next()
        assert isinstance(item, StepBatches)
        assert [(len(inputs), len(targets)) for inputs, targets in item.batches] == [(0, 3), (0, 3)]  # type: ignore[misc]
