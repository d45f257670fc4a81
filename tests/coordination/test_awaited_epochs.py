"""Which epochs of a stream come again, by what the books know."""

from __future__ import annotations

from fleet.coordination.job_record import JobRecord
from fleet.coordination.live_state import LiveState
from fleet.coordination.open_lanes import AwaitedEpochs
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve
from preprocess.samples.stream import StreamKey

KEY = StreamKey("data", 3, 5)


def books() -> LiveState:
    """Jobs a, b and c of one stream, and d of another."""
    records = [
        JobRecord.of(
            JobState(name, RateCurve({1: 10.0}, 4), 1, data="data", epoch=100.0, remaining=900.0),
            f"data/{4 if name == 'd' else 3}",
        )
        for name in "abcd"
    ]
    found = LiveState(Cluster((4,)), records, seed=0)
    for name, epoch in zip("abc", (5, 2, 4)):
        found.goes_on_from(name, epoch, 0, 0.0)
    return found


def test_those_who_read_elsewhere_or_wait_come_to_it_again() -> None:
    awaited = AwaitedEpochs(books(), searches=False)
    assert awaited.first(KEY, {"a"}) == 2
    assert awaited.first(KEY, {"a", "b"}) == 4
    assert awaited.first(KEY, {"a", "b", "c"}) is None, "d reads another stream"
    assert awaited.first(StreamKey("other", 3, 5), {"a"}) is None


def test_what_is_read_and_awaited_of_each_stream_is_told_by_lane() -> None:
    found = books()
    awaited = AwaitedEpochs(found, searches=False)
    assert awaited.of("data/3", {}) == (2, {}) and awaited.of("data/4", {}) == (0, {})
    assert awaited.of("data/3", {7: {"a", "c"}}) == (2, {7: 4}) and awaited.of("data/4", {8: {"d"}}) == (None, {8: 0})
    assert not awaited.take_gone()
    for job in "abc":
        found.done(job, 9, {}, None, 1.0)
    assert awaited.take_gone() == {"data/3"} and not awaited.take_gone()
    assert awaited.of("data/3", {7: {"a"}}) == (None, {})


def test_those_that_are_done_come_no_more() -> None:
    found = books()
    found.done("b", 9, {}, None, 1.0)
    assert AwaitedEpochs(found, searches=False).first(KEY, {"a"}) == 4


def test_trials_may_come_from_the_first_epoch_on_where_they_share_a_stream() -> None:
    found = books()
    found.done("b", 9, {}, None, 1.0)
    found.done("c", 9, {}, None, 1.0)
    awaited = AwaitedEpochs(found, searches=True)
    assert awaited.first(KEY, {"a"}) == 0
    assert awaited.first(StreamKey("data", 4, 0), {"d"}) is None, "each trial seems to have a stream of its own"
