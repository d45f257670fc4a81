"""Which jobs that start together share a lane, by what the books know."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest

from fleet.coordination.job_record import JobRecord
from fleet.coordination.live_state import LiveState
from fleet.coordination.open_lanes import LaneGrouping, OpenLanes, StreamPlace
from fleet.coordination.protocol import OpenLane, Start
from fleet.coordination.worker_channel import WorkerChannel
from fleet.machine.cluster_map import ClusterMap, Place
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.data_path import DataPath
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve
from preprocess import SampleLayout
from preprocess.samples.stream import LaneSchedule, LaneSpec, StreamKey
from tests.coordination.test_losses import Post

EPOCH, RATE = 100.0, 10.0
KEY = StreamKey("data", 0, 0)


class Book:
    """Jobs' places are their steps; `divided`: whether each preprocessor has samples of its own."""

    def __init__(self, divided: bool = False) -> None:
        self._divided = divided

    def place_of(self, job: str, epoch: int, step: int) -> StreamPlace:
        return StreamPlace(KEY, step)

    def lane(
        self, number: int, first: StreamPlace, jobs: Mapping[str, int | None], readers: tuple[int, ...]
    ) -> LaneSpec:
        layout = SampleLayout((1,), "float32", (), "int64")
        return LaneSpec(
            number, 1, KEY, LaneSchedule(100, 0, 0, 0, first.place), layout, {0: readers}, 8, divided=self._divided
        )

    def samples_between(self, job: str, begin: tuple[int, int], end: tuple[int, int]) -> int:
        return 0


def ledger(places: Sequence[int], made: float | None, epochs: float) -> LiveState:
    """Jobs that train 10 samples/s for so many epochs, and preprocessors that make so many samples/s."""
    states = [
        JobState(name, RateCurve({1: RATE}, 4), 1, data="data", epoch=EPOCH, remaining=epochs * EPOCH - place)
        for name, place in zip("abcd", places)
    ]
    books = LiveState(Cluster((4,)), [JobRecord.of(state, "data/0") for state in states], seed=0)
    if made is not None:
        books.preprocessors_measured(DataPath({1: made}, {"data": made}))
    return books


def opened(
    places: Sequence[int], made: float | None, count: int = 4, share: bool = True, epochs: float = 1
) -> list[tuple[set[str], int]]:
    """Who reads each lane that was opened, and where it begins."""
    ranks = [Place(0, 0, "n", "coordinator+preprocessor", None, "cpu", (), 1, 1, 1)]
    ranks += [Place(rank, 0, "n", "trainer", rank - 1, "cpu", (), 1, 1, 1) for rank in range(1, 5)]
    post = Post()
    crew = WorkerChannel(post, ClusterMap(tuple(ranks)), lambda: None, frozenset)  # type: ignore[arg-type]
    mates = LaneGrouping(ledger(places, made, epochs))
    starts = [Start(job, (number,), 0, place, False, ()) for number, (job, place) in enumerate(zip("abcd", places))]
    found = OpenLanes(crew, Book(), count, mates).open_for(starts, share)
    told = {message.lane.lane: message.lane.schedule.first_place for _, message in post.told(OpenLane)}
    return [({start.job for start, lane in found if lane.lane == number}, place) for number, place in told.items()]


@pytest.mark.parametrize("made", [None, 5.0, 1e6])
def test_jobs_at_one_place_share_always(made: float | None) -> None:
    assert opened([30, 30, 30], made) == [({"a", "b", "c"}, 30)]


def test_all_of_a_stream_share_where_nobody_knows_what_samples_take() -> None:
    assert opened([0, 90], None) == [({"a", "b"}, 0)]


def test_nobody_waits_where_preprocessors_would_be_idle() -> None:
    assert opened([0, 90], 20.0) == [({"a"}, 0), ({"b"}, 90)]


@pytest.mark.parametrize("epochs", [1, math.inf])
def test_jobs_share_where_two_lanes_would_slow_both(epochs: float) -> None:
    assert opened([0, 50], 10.0, epochs=epochs) == [({"a", "b"}, 0)]
    assert opened([0, 90], 10.0, epochs=epochs) == [({"a"}, 0), ({"b"}, 90)], "ten samples are left of it"


def test_the_epochs_that_are_still_to_come_count() -> None:
    assert opened([0, 90], 10.0, epochs=2) == [({"a", "b"}, 0)]


def test_neighbours_share_where_the_rings_have_no_lane_more() -> None:
    assert opened([0, 80, 90], 1e6, count=3) == [({"a"}, 0), ({"b"}, 80), ({"c"}, 90)]
    assert opened([0, 80, 90], 1e6, count=2) == [({"a"}, 0), ({"b", "c"}, 80)]
    assert opened([0, 80, 90], 1e6, count=1) == [({"a", "b", "c"}, 0)]


def test_each_has_a_lane_under_a_policy_that_shares_none() -> None:
    assert len(opened([0, 0], None, share=False)) == 2


@pytest.mark.parametrize(("divided", "makers"), [(False, (0,)), (True, (0, 1, 2))])
def test_all_preprocessors_work_where_each_keeps_samples_of_its_own(divided: bool, makers: tuple[int, ...]) -> None:
    """One alone would be fast enough; but it has a third of what is kept."""
    ranks = [Place(rank, 0, "n", "preprocessor", None, "cpu", (), 1, 1, 1) for rank in range(3)]
    ranks.append(Place(3, 0, "n", "trainer", 0, "cpu", (), 1, 1, 1))
    crew = WorkerChannel(Post(), ClusterMap(tuple(ranks)), lambda: None, frozenset)  # type: ignore[arg-type]
    ((_, lane),) = OpenLanes(crew, Book(divided), 4).open_for([Start("a", (0,), 0, 0, False, (), makers=1)], False)
    assert lane.makers == makers


@pytest.mark.parametrize(("asked", "most", "filled"), [(0, 2, 2), (3, 2, 2), (1, 2, 1), (0, 0, 3)])
def test_no_more_preprocessors_fill_a_lane_than_it_has_slots_for(asked: int, most: int, filled: int) -> None:
    ranks = [Place(rank, 0, "n", "preprocessor", None, "cpu", (), 1, 1, 1) for rank in range(3)]
    ranks.append(Place(3, 0, "n", "trainer", 0, "cpu", (), 1, 1, 1))
    crew = WorkerChannel(Post(), ClusterMap(tuple(ranks)), lambda: None, frozenset)  # type: ignore[arg-type]
    lanes = OpenLanes(crew, Book(), 4, makers=most)
    ((_, lane),) = lanes.open_for([Start("a", (0,), 0, 0, False, (), makers=asked)], False)
    assert len(lane.makers) == filled
