"""What rank 0 makes of lost ranks: whom it tells, what it says happened, and when the others cannot go on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import pytest

from fleet.coordination.executor import Event, GroupEnded, RanksGone, SetBack
from fleet.coordination.failures import RanksLost
from fleet.coordination.live_executor import EnergyShares, LiveExecutor
from fleet.coordination.open_lanes import OpenLanes, StreamPlace
from fleet.coordination.protocol import (
    DismissReader,
    DismissWriter,
    Left,
    Message,
    OpenLane,
    ReplaceWriter,
    Start,
    StopGroup,
)
from fleet.coordination.worker_channel import WorkerChannel
from fleet.journal import events
from fleet.machine.cluster_map import ClusterMap, Place
from fleet.machine.launch.launched import StopFlag
from preprocess import SampleLayout
from preprocess.samples.stream import LaneSchedule, LaneSpec, StreamKey

KEY = StreamKey("data", 0, 0)
Kind = TypeVar("Kind", bound=Message)


class Post:
    """A mailbox in memory: what was sent, and what is still to be received."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Message]] = []
        self.incoming: list[Message] = []

    def send(self, rank: int, inbox: int, message: Message) -> None:
        self.sent.append((rank, message))

    def send_all(self, ranks: Iterable[int], inbox: int, message: Message) -> None:
        for rank in ranks:
            self.send(rank, inbox, message)

    def receive(self, timeout: float, until: Any) -> Message | None:
        return self.incoming.pop(0) if self.incoming else None

    def told(self, kind: type[Kind]) -> list[tuple[int, Kind]]:
        return [(rank, message) for rank, message in self.sent if isinstance(message, kind)]


class Unread:
    """Books of hosts without counters: nobody writes there."""

    def record(self, event: events.Event) -> None:
        raise AssertionError(event)


class Machine:
    """Rank 0 and another preprocessor, and four trainers; `lost` may be added to at any time."""

    def __init__(self, preprocessors: int = 2, nodes: tuple[int, ...] = (0, 0, 0, 0, 0, 0), lent: int = 0) -> None:
        roles = ["coordinator+preprocessor", "preprocessor"][:preprocessors]
        roles += ["trainer"] * (6 - preprocessors)
        places = [
            Place(
                r, nodes[r], f"n{nodes[r]}", role, r - preprocessors if role == "trainer" else None, "cpu", (), 1, 1, 1
            )
            for r, role in enumerate(roles)
        ]
        self.post, self.lost = Post(), frozenset[int]()
        crew = WorkerChannel(self.post, ClusterMap(tuple(places)), lambda: None, lambda: self.lost, lent)  # type: ignore[arg-type]
        tags = iter(range(1000, 9999)).__next__
        self.executor = LiveExecutor(
            crew,
            OpenLanes(crew, self, 6),
            tags,
            StopFlag(),
            lambda skipped: None,
            (4, 2, 1.0),
            EnergyShares((), lambda ranks: None, Unread().record),
        )

    def place_of(self, job: str, epoch: int, step: int) -> StreamPlace:
        return StreamPlace(KEY, 0)

    def lane(
        self, number: int, first: StreamPlace, jobs: Mapping[str, int | None], readers: tuple[int, ...]
    ) -> LaneSpec:
        layout = SampleLayout((1,), "float32", (), "int64")
        return LaneSpec(number, 1, KEY, LaneSchedule(8, 0, 0, 0, 0), layout, {0: readers}, 8)

    def samples_between(self, job: str, begin: tuple[int, int], end: tuple[int, int]) -> int:
        return 10 * (end[0] - begin[0]) + end[1] - begin[1]

    def start(self, makers: int = 0, prepared_by: tuple[int, ...] = (), **jobs: tuple[int, ...]) -> None:
        starts = tuple(
            Start(job, devices, 0, 0, False, (), makers=makers, prepared_by=prepared_by)
            for job, devices in jobs.items()
        )
        self.executor.start(starts, 0, share=False)

    def lose(self, *ranks: int) -> None:
        self.lost |= set(ranks)

    def events(self) -> list[Event]:
        found = []
        while (event := self.executor.next_event(0.0)) is not None:
            found.append(event)
        return found


def test_the_group_of_a_lost_trainer_ends_once_its_survivors_have_said_so() -> None:
    machine = Machine()
    machine.start(a=(0, 1), b=(2,))
    machine.lose(3)
    (gone,) = machine.events()
    assert gone == RanksGone((3,), ("n0",), (1,), False)
    assert [(rank, m.reader) for rank, m in machine.post.told(DismissReader)] == [(0, 3)]
    machine.post.incoming.append(Left("a", 2, "peer", error="rank 3 failed"))
    (ended,) = machine.events()
    assert isinstance(ended, GroupEnded) and (ended.job, ended.why, ended.devices) == ("a", "lost", (0, 1))
    assert not machine.post.told(StopGroup), "the other network goes on"


def test_what_a_rank_said_before_its_end_still_counts() -> None:
    machine = Machine()
    machine.start(a=(0, 1))
    machine.lose(3)
    machine.post.incoming += [Left("a", 2, "done", "epochs", 3), Left("a", 3, "done", "epochs", 3)]
    ended, gone = machine.events()
    assert isinstance(ended, GroupEnded) and ended.why == "done" and isinstance(gone, RanksGone)


def test_a_job_whose_only_copy_was_in_a_lost_ranks_memory_is_set_back() -> None:
    machine = Machine()
    machine.start(a=(0,))
    machine.post.incoming.append(Left("a", 2, "stopped", "policy", held=True))
    machine.events()
    machine.lose(2)
    assert machine.events() == [RanksGone((2,), ("n0",), (0,), False), SetBack("a")]
    machine.start(a=(1,))
    assert not any(rank == 2 for rank, _ in machine.post.sent[-2:])


def test_a_failure_counts_more_than_a_loss() -> None:
    machine = Machine()
    machine.start(a=(0, 1))
    machine.lose(3)
    machine.post.incoming.append(Left("a", 2, "failed", error="the loss is nan"))
    *_, ended = machine.events()
    assert isinstance(ended, GroupEnded) and (ended.why, ended.error) == ("failed", "the loss is nan")


def test_another_preprocessor_takes_over_once_nobody_reads_what_is_missing() -> None:
    machine = Machine()
    machine.start(a=(0,), b=(1,))
    machine.lose(1)
    assert machine.events() == [RanksGone((1,), ("n0",), (), True)]
    assert {m.job for _, m in machine.post.told(StopGroup)} == {"a", "b"}
    assert [rank for rank, _ in machine.post.told(DismissWriter)] == [0]
    machine.post.incoming.append(Left("a", 2, "stopped", "policy", held=True))
    machine.events()
    assert not machine.post.told(ReplaceWriter), "b still reads"
    machine.post.incoming.append(Left("b", 3, "lost"))
    (ended,) = machine.events()
    assert isinstance(ended, GroupEnded) and ended.why == "lost"
    assert [rank for rank, m in machine.post.told(ReplaceWriter)] == [0, 0], "the keeper, and the heir"
    before = len(machine.post.sent)
    machine.start(b=(1,))
    opened = [rank for rank, m in machine.post.sent[before:] if isinstance(m, OpenLane)]
    assert opened == [0, 0], "rank 0 keeps the ring and fills it, nobody else"


@pytest.mark.parametrize("nodes", [(0, 0, 0, 0, 0, 0), (0, 0, 0, 1, 1, 1)], ids=["one node", "two nodes"])
def test_the_loss_of_a_preprocessor_that_rests_stops_nobody(nodes: tuple[int, ...]) -> None:
    machine = Machine(nodes=nodes)
    machine.start(1, a=(0,))
    machine.lose(1)
    assert machine.events() == [RanksGone((1,), ("n0",), (), False)]
    assert not machine.post.told(StopGroup) and not machine.post.told(DismissWriter)
    machine.start(2, b=(1,))
    assert [m.lane.makers for _, m in machine.post.told(OpenLane)][-1] == (0,), "nobody else is left"


def test_the_loss_of_one_that_has_worked_is_made_good_while_others_go_on() -> None:
    machine = Machine()
    machine.start(2, a=(0,))
    machine.post.incoming.append(Left("a", 2, "stopped", "policy", held=True))
    machine.events()
    machine.start(1, b=(1,))
    machine.lose(1)
    assert machine.events() == [RanksGone((1,), ("n0",), (), False)]
    machine.start(2, c=(2,))
    assert [m.lane.makers for _, m in machine.post.told(OpenLane)][-1] == (0,), "its heir has not begun"


def test_a_lane_is_filled_by_those_who_fill_fewest() -> None:
    machine = Machine()
    for job, device, makers in (("a", 0, 1), ("b", 1, 1), ("c", 2, 2)):
        machine.start(makers, **{job: (device,)})
    told = [(rank, m.lane.makers) for rank, m in machine.post.told(OpenLane)]
    assert told == [(0, (0,)), (0, (0,)), (0, (1,)), (1, (1,)), (0, (0, 1)), (0, (0, 1)), (1, (0, 1))]


@pytest.mark.parametrize(
    ("machine", "ranks", "who"),
    [
        (Machine(), (2, 3, 4, 5), "all trainers"),
        (Machine(nodes=(0, 1, 0, 0, 1, 1)), (1,), "rank 1 on n1"),
        (Machine(1, nodes=(0, 0, 0, 1, 1, 1)), (3,), "rank 3 on n1"),
    ],
    ids=["all trainers", "a preprocessor elsewhere", "who receives on a node"],
)
def test_some_cannot_be_done_without(machine: Machine, ranks: tuple[int, ...], who: str) -> None:
    machine.lose(*ranks)
    with pytest.raises(RanksLost, match=who) as raised:
        machine.events()
    assert raised.value.code == 70
