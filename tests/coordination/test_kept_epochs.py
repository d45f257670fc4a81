"""Rank 0 has preprocessors drop what nobody reads any more, as soon as its books say so, and says so once."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.coordination.live_state import LiveState
from fleet.coordination.open_lanes import AwaitedEpochs, KeptEpochs, OpenLanes, StreamPlace
from fleet.coordination.protocol import Start, StreamAwaited
from fleet.coordination.worker_channel import WorkerChannel
from fleet.machine.cluster_map import ClusterMap, Place
from preprocess import SampleLayout
from preprocess.samples.stream import LaneSchedule, LaneSpec, StreamKey
from tests.coordination.test_awaited_epochs import books
from tests.coordination.test_losses import Post

ROLES = ("coordinator+preprocessor", "preprocessor", "trainer", "trainer", "trainer", "trainer")


class Scene:
    """Two preprocessors, four trainers, jobs a, b and c of one stream and d of another; a lane each."""

    def __init__(self) -> None:
        self.ledger: LiveState = books()
        places = tuple(
            Place(rank, 0, "n", role, rank - 2 if role == "trainer" else None, "cpu", (), 1, 1, 1)
            for rank, role in enumerate(ROLES)
        )
        self.post, self.lost = Post(), frozenset[int]()
        self.crew = WorkerChannel(self.post, ClusterMap(places), lambda: None, lambda: self.lost)  # type: ignore[arg-type]
        self.awaited = AwaitedEpochs(self.ledger, searches=False)
        self.lanes = OpenLanes(self.crew, self, 4, kept=KeptEpochs(self.crew, self.awaited))
        self._numbers: dict[str, int] = {}

    def place_of(self, job: str, epoch: int, step: int) -> StreamPlace:
        return StreamPlace(StreamKey("data", 4 if job == "d" else 3, epoch), 0)

    def lane(
        self, number: int, first: StreamPlace, jobs: Mapping[str, int | None], readers: tuple[int, ...]
    ) -> LaneSpec:
        layout, others = SampleLayout((1,), "float32"), self.awaited.first(first.key, jobs)
        return LaneSpec(number, 1, first.key, LaneSchedule(8), layout, {0: readers}, 8, awaited_from=others)

    def samples_between(self, job: str, begin: tuple[int, int], end: tuple[int, int]) -> int:
        return 0

    def start(self, job: str) -> None:
        begin = Start(job, ("abcd".index(job),), self.ledger.jobs[job].epoch, 0, False, ())
        self.ledger.started(job, begin.devices, 0.0)
        ((_, lane),) = self.lanes.open_for([begin], share=False)
        self._numbers[job] = lane.lane

    def end(self, job: str, done: bool = True) -> None:
        self.lanes.leave(self._numbers[job], job, (0, 0), (0, 0))
        if done:
            self.ledger.done(job, 9, {}, None, 1.0)
        else:
            self.ledger.stopped(job, self.ledger.jobs[job].epoch, 0, 1.0)

    def told(self) -> list[tuple[int, int, int | None, dict[int, int]]]:
        """(rank, seed, waiting, reading) of what is told now."""
        self.lanes.look()
        found = [(rank, word.seed, word.waiting, word.reading) for rank, word in self.post.told(StreamAwaited)]
        self.post.sent.clear()
        return found


def test_what_nobody_reads_any_more_is_told_once_to_all_preprocessors() -> None:
    scene = Scene()
    scene.start("a")
    assert scene.told() == [], "whoever fills the lane knows that others wait at epoch 2"
    scene.end("a")
    scene.ledger.done("b", 9, {}, None, 1.0)
    assert scene.told() == [(rank, 3, 4, {}) for rank in (0, 1)]
    scene.ledger.failed("c", 4, "it sank", 2.0)
    assert scene.told() == [(rank, 3, None, {}) for rank in (0, 1)]
    scene.ledger.failed("d", 0, "nobody keeps any of its samples", 2.0)
    assert scene.told() == []


def test_a_job_that_leaves_to_go_on_awaits_its_epochs() -> None:
    scene = Scene()
    scene.start("d")
    scene.end("d", done=False)
    assert scene.told() == [(rank, 4, 0, {}) for rank in (0, 1)]
    scene.start("d")
    assert scene.told() == [], "whoever fills the lane knows that nobody else waits"
    scene.end("d")
    assert scene.told() == [(rank, 4, None, {}) for rank in (0, 1)]


def test_lanes_that_read_one_stream_are_told_apart() -> None:
    scene = Scene()
    for job in "ab":
        scene.start(job)
    assert scene.told() == [(rank, 3, 4, {0: 5, 1: 2}) for rank in (0, 1)]
    scene.ledger.epoch_ended("b", 3, {}, 1.0, 1.0)
    assert scene.told() == [], "preprocessors see how far a lane has come"
    scene.ledger.halted("c")
    assert scene.told() == [(rank, 3, None, {0: 5, 1: 3}) for rank in (0, 1)]


def test_lost_preprocessors_are_not_told() -> None:
    scene = Scene()
    scene.start("a")
    scene.lost = frozenset({1})
    scene.crew.take_out_lost()
    scene.end("a")
    assert [rank for rank, *_ in scene.told()] == [0]
