"""What a rank says last arrives, also where nobody holds the mailbox that it was sent through."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import numpy as np
import pytest

from fleet.coordination.mailbox import Mailbox
from fleet.coordination.protocol import (
    TO_COORDINATOR,
    TO_KEEPER,
    TO_PREPROCESSOR,
    MakeRing,
    OpenLane,
    Shutdown,
    SkipSamples,
)
from fleet.workers.preprocessor_rank import PreprocessorRank
from fleet.workers.rank import Rank
from fleet.workers.runtime import Runtime
from preprocess import Dataset, DatasetSpec, SourceSpec
from preprocess.samples.errors import RingTimeout
from preprocess.samples.stream import LaneSchedule, LaneSpec, StreamKey

LONG = SkipSamples("numbers", train=tuple(range(100_000)), held_out=())  # MPI takes it when its reader is there


class Numbers:
    """Images whose pixels are the sample's number."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return np.full((4, 4, 3), index, np.uint8), index


def test_a_word_arrives_though_its_mailbox_is_thrown_away(rank: Callable[..., Rank]) -> None:
    me = rank()
    me.mailbox(TO_PREPROCESSOR).send(0, TO_COORDINATOR, LONG)
    gc.collect()
    reader = Mailbox(me.world, TO_COORDINATOR)
    assert reader.receive(10.0) == LONG
    me.flush()


def test_a_preprocessor_waits_for_a_lane_as_long_as_the_spec_says(
    rank: Callable[..., Rank], runtime: Callable[..., Runtime]
) -> None:
    data = Dataset(DatasetSpec("numbers", SourceSpec(Numbers())))
    me = rank(runtime(resources={"timeout": 1.0}), datasets={"numbers": data})
    begin = time.monotonic()

    def moves() -> None:
        assert time.monotonic() - begin < 20.0, "it waits as if the spec had said nothing"

    preprocessor = PreprocessorRank(me, moves)
    order = MakeRing(1, 4096, 8, 1)
    lane = LaneSpec(0, 1, StreamKey("numbers", 0, 0), LaneSchedule(50, 0, 0), data.layout, {0: (0,)})
    orders = me.mailbox(TO_COORDINATOR)
    for message in (order, OpenLane(lane)):  # the lane is opened by the keeper, whom nobody tells
        orders.send(0, TO_PREPROCESSOR, message)
    try:
        with pytest.raises(RingTimeout):
            preprocessor.run()
    finally:
        orders.send(0, TO_KEEPER, Shutdown(0))
        for thread in me.threads:
            thread.join(10.0)
        assert not any(thread.is_alive() for thread in me.threads)
