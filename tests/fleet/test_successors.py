"""Networks that are told whom they follow: they begin at once, and leave no trace if they are called off."""

from __future__ import annotations

from fleet.coordination.executor import GroupEnded, Start
from fleet.coordination.protocol import EpochEnded, Formed, Left, StartGroup, StopGroup
from tests.fleet.test_losses import Machine


def follow(machine: Machine, job: str, device: int) -> bool:
    return machine.executor.follow((Start(job, (device,), 0, 0, False, ()),), share=False)


def ended(job: str, epoch: int) -> EpochEnded:
    return EpochEnded(job, epoch, 4, 1.0, 8.0, {}, 0.1, (0.0,), (0.0,), (1.0,))


def test_what_a_follower_does_is_heard_once_it_is_started() -> None:
    machine = Machine()
    machine.start(a=(0,))
    assert follow(machine, "b", 0)
    assert [order.job for _, order in machine.post.told(StartGroup)] == ["a", "b"]
    machine.post.incoming += [Formed("b", 0.1), ended("b", 1), Left("a", 2, "done", "epochs", 2)]
    (left,) = machine.events()
    assert isinstance(left, GroupEnded) and left.job == "a"
    machine.start(b=(0,))
    assert [order.job for _, order in machine.post.told(StartGroup)] == ["a", "b"], "it has been told"
    assert machine.events() == [Formed("b", 0.1), ended("b", 1)]


def test_a_follower_that_is_called_off_leaves_no_trace() -> None:
    machine = Machine()
    machine.start(a=(0,))
    follow(machine, "b", 0)
    machine.executor.call_off("b")
    assert [(rank, order) for rank, order in machine.post.told(StopGroup)] == [(2, StopGroup("b", "called off"))]
    machine.post.incoming += [Formed("b", 0.1), Left("b", 2, "stopped", "called off")]
    assert machine.events() == []
    machine.start(b=(1,))
    assert [(rank, order.job) for rank, order in machine.post.told(StartGroup)] == [(2, "a"), (2, "b"), (3, "b")]


def test_a_follower_that_gets_another_device_has_left_the_first_before() -> None:
    machine = Machine()
    machine.start(a=(0,))
    follow(machine, "b", 0)
    machine.post.incoming += [ended("b", 1), Left("b", 2, "stopped", "called off", 1)]
    machine.start(b=(1,))
    assert machine.post.incoming == [], "its last word was waited for"
    assert machine.events() == []
    assert machine.post.told(StartGroup)[-1][0] == 3


def test_nobody_follows_where_no_lane_is_left() -> None:
    machine = Machine()  # six lanes, of which one is for those that close
    machine.start(a=(0,), b=(1,), c=(2,))
    assert follow(machine, "d", 0) and follow(machine, "e", 1)
    assert not follow(machine, "f", 2)
