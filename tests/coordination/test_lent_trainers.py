"""What rank 0 says to trainers that prepare samples, and what becomes of their numbers."""

from __future__ import annotations

from fleet.coordination.executor import RanksGone
from fleet.coordination.protocol import (
    CloseLane,
    DismissWriter,
    Left,
    OpenLane,
    PrepareLane,
    ReplaceWriter,
    StartGroup,
    StopGroup,
)
from tests.coordination.test_losses import Machine


def lanes(machine: Machine) -> list[tuple[int, ...]]:
    """By whom each lane is filled, in the order of their openings, as the keeper hears it."""
    found = {message.lane.lane: message.lane.makers for rank, message in machine.post.told(OpenLane)}
    return list(found.values())


def leave(machine: Machine, job: str, rank: int) -> None:
    machine.post.incoming.append(Left(job, rank, "stopped", "policy", held=True))
    machine.events()


def test_a_trainer_hears_of_lanes_in_the_order_of_its_other_work() -> None:
    machine = Machine(lent=1)  # ranks 0 and 1 are preprocessors, trainers 0 to 3 have the ranks 2 to 5
    machine.start(prepared_by=(3,), a=(0,))
    assert lanes(machine) == [(0, 1, 2)]
    assert [(rank, m.writer) for rank, m in machine.post.told(PrepareLane)] == [(5, 2)]
    leave(machine, "a", 2)
    machine.start(a=(0,), b=(3,))
    told = [type(message) for rank, message in machine.post.sent if rank == 5]
    assert told == [PrepareLane, CloseLane, StartGroup]
    assert lanes(machine)[1:] == [(0, 1)] * 2
    assert machine.executor.count_samples().made == {}


def test_a_number_goes_to_another_trainer_once_nobody_fills_a_lane_with_it() -> None:
    machine = Machine(lent=1)
    machine.start(prepared_by=(3,), a=(0,))
    machine.start(prepared_by=(2,), b=(1,))
    assert lanes(machine) == [(0, 1, 2), (0, 1)], "the only number is taken"
    leave(machine, "a", 2)
    leave(machine, "b", 3)
    machine.start(prepared_by=(2,), a=(0,))
    assert [(rank, m.writer) for rank, m in machine.post.told(PrepareLane)] == [(5, 2), (4, 2)]


def test_a_lost_one_has_no_heir() -> None:
    machine = Machine(lent=2)
    machine.start(1, prepared_by=(3,), a=(0,))
    machine.lose(5)
    assert machine.events() == [RanksGone((5,), ("n0",), (3,), True)]
    assert [m.job for _, m in machine.post.told(StopGroup)] == ["a"], "its samples are missing"
    assert [(rank, m.writer) for rank, m in machine.post.told(DismissWriter)] == [(0, 2)]
    machine.post.incoming.append(Left("a", 2, "lost"))
    machine.events()
    assert [(rank, m.writer) for rank, m in machine.post.told(ReplaceWriter)] == [(0, 2)], "the keeper alone"
    machine.start(1, prepared_by=(2, 3), a=(0,))
    assert [(rank, m.writer) for rank, m in machine.post.told(PrepareLane)] == [(5, 2), (4, 2)]
