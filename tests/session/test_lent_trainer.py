"""A trainer that prepares samples makes those of a preprocessor, and computes as before once it trains again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from fleet.coordination.failures import CannotGoOnError
from fleet.coordination.mailbox import Mailbox
from fleet.coordination.protocol import (
    TO_COORDINATOR,
    TO_KEEPER,
    TO_TRAINER,
    CloseLane,
    MakeRing,
    OpenLane,
    PrepareLane,
    SamplesMade,
    Shutdown,
    SkipSamples,
)
from fleet.workers.datasets import open_datasets
from fleet.workers.helper_preprocessor import HelperPreprocessor
from fleet.workers.rank import Rank
from fleet.workers.runtime import Runtime
from preprocess.ring.ring import Ring
from preprocess.samples.order import TRAIN
from preprocess.samples.stream import LaneSchedule, LaneSpec, StreamKey

SAMPLES, SLOT = 48, 8
ORDER = MakeRing(1, 8192, SLOT, 2)
SPEC = {"numbers": {"train": f"{__name__}:Numbers", "on_corrupt": "skip"}}


class Numbers:
    """Images whose pixels are the sample's number."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return np.full((4, 4, 3), index, np.uint8), index


@pytest.fixture
def me(rank: Callable[..., Rank], runtime: Callable[..., Runtime]) -> Iterator[Rank]:
    """A rank with a keeper, which opens and closes lanes."""
    mine = rank(runtime(data=SPEC, resources={"timeout": 20.0}))
    yield mine
    mine.mailbox(TO_COORDINATOR).send(0, TO_KEEPER, Shutdown(0))
    for thread in mine.threads:
        thread.join(10.0)
    assert not any(thread.is_alive() for thread in mine.threads)


@pytest.fixture
def deterministic() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)


def settings() -> tuple[int, bool]:
    return torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()


def begun(me: Rank) -> tuple[HelperPreprocessor, Ring, LaneSpec]:
    """It fills a lane as the preprocessor of number 1, alone."""
    lent, ring = HelperPreprocessor(me, me.mailbox(TO_TRAINER), lambda: None), me.make_ring(ORDER)
    lent.learn(ring, ORDER)
    lent.obey(SkipSamples("numbers", (3,), ()))
    layout = open_datasets(me.runtime.spec)["numbers"].layout
    lane = LaneSpec(
        0, 1, StreamKey("numbers", 0, 0), LaneSchedule(SAMPLES, 0, 0), layout, {0: (0,)}, makers=(1,), awaited_from=0
    )
    lent.obey(PrepareLane(1, lane))
    return lent, ring, lane


def test_it_makes_what_a_preprocessor_makes(me: Rank, deterministic: None) -> None:
    lent, ring, lane = begun(me)
    assert lent.is_busy and settings() == (1, False)
    me.mailbox(TO_COORDINATOR).send(0, TO_KEEPER, OpenLane(lane))
    reader = ring.lanes[0].reader(0, lane.layout, 1)
    with ThreadPoolExecutor(1) as reading:
        got = reading.submit(reader.gather, np.arange(SAMPLES), 20.0)
        deadline = time.monotonic() + 20.0
        while not got.done() and time.monotonic() < deadline:
            lent.work()
    found = got.result()
    assert found is not None
    dataset = open_datasets(me.runtime.spec)["numbers"]
    dataset.skip_always(TRAIN, [3])
    inputs, targets = dataset.layout.empty(SAMPLES)
    for _ in dataset.fill(lane.schedule, 0, 0, inputs, targets):
        pass
    assert np.array_equal(found[0], inputs) and np.array_equal(found[1], targets) and 3 not in targets
    reader.leave()
    me.mailbox(TO_COORDINATOR).send(0, TO_KEEPER, CloseLane(0))
    lent.obey(CloseLane(0))
    assert kept_bytes(lent) > SAMPLES * 4 * 4 * 3
    lent.give_back()
    assert not lent.is_busy and settings() == (2, True)
    assert kept_bytes(lent) == 0, "its memory is the network's now"
    told = Mailbox(me.world, TO_COORDINATOR).receive(10.0)
    while not isinstance(told, SamplesMade):
        assert told is not None, "nobody said how many were made"
        told = Mailbox(me.world, TO_COORDINATOR).receive(10.0)
    assert told.laid["numbers"] >= SAMPLES


def kept_bytes(lent: HelperPreprocessor) -> int:
    """What it has kept of finished samples."""
    assert lent._maker is not None
    (making,) = lent._maker._making
    assert making._finished is not None
    return making._finished.nbytes


def test_it_says_for_whom_it_waits_if_it_cannot_give_the_role_back(me: Rank) -> None:
    lent, _, lane = begun(me)
    me.runtime = me.runtime.__class__(me.runtime.spec, me.runtime.facts, None, 0.2)
    with pytest.raises(CannotGoOnError, match="waited 0.2 s for rank 0 to open and close"):
        lent.give_back()
