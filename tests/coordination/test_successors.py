"""Networks that are told whom they follow: they begin at once, and leave no trace if they are called off."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from fleet.coordination.coordinator import Coordinator
from fleet.coordination.executor import Event, GroupEnded, RunHooks
from fleet.coordination.job_record import JobRecord
from fleet.coordination.live_state import LiveState, Recorder
from fleet.coordination.protocol import EpochEnded, Formed, Left, Start, StartGroup, StopGroup
from fleet.journal.journal import Journal
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, Policy, State
from fleet.spec.policies import policy
from tests.coordination.test_coordinator import CURVE, Clock, Obedient
from tests.coordination.test_losses import Machine

EPOCH = 10  # samples, which take a second


def follow(machine: Machine, job: str, device: int) -> bool:
    return machine.executor.follow({"abc"[device]: Start(job, (device,), 0, 0, False, ())}, share=False)


def ended(job: str, epoch: int) -> EpochEnded:
    return EpochEnded(job, epoch, 4, 1.0, 8.0, {}, 0.1, (0.0,), (0.0,), (1.0,))


def test_what_a_follower_does_is_heard_once_it_is_started() -> None:
    machine = Machine()
    machine.start(a=(0,))
    assert follow(machine, "b", 0)
    assert [(order.job, order.after) for _, order in machine.post.told(StartGroup)] == [("a", ""), ("b", "a")]
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


class Telling(Obedient):
    """Groups tell of the first of their two epochs, a second after their start, and are done a second later."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.ends = dict.fromkeys("abcdef", 2.0)
        self.told: list[tuple[float, str, int]] = []  # when, who follows, and on which device
        self.called_off: list[str] = []
        self.epochs: list[tuple[float, str]] = []

    def start(self, batch: tuple[Start, ...], round_: int, share: bool) -> Any:
        self.epochs += [(self.clock.now + 1.0, start.job) for start in batch]
        return super().start(batch, round_, share)

    def follow(self, batch: Mapping[str, Start], share: bool) -> bool:
        self.told += [(self.clock.now, start.job, start.devices[0]) for start in batch.values()]
        return True

    def call_off(self, job: str) -> None:
        self.called_off.append(job)

    def next_event(self, timeout: float) -> Event | None:
        if self.epochs and self.epochs[0][0] <= min((end for end, _ in self.running.values()), default=math.inf):
            self.clock.now, job = self.epochs.pop(0)
            return ended(job, 1)
        return super().next_event(timeout)


class Wavering(Policy):
    """One job after the other on the only device; which comes next is the other one each time that it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def plan(self, state: State) -> Plan:
        self.asked += 1
        waiting = [job.name for job in state.jobs if job.name not in state.running]
        chosen = {} if state.running or not waiting else {waiting[-(self.asked % 2)]: (0,)}
        return Plan({**state.running, **chosen})


def coordinated(names: str, chosen: Any, devices: int, outside: Any = None) -> Telling:
    """The machine, once all jobs are done."""
    clock = Clock()
    jobs = [JobState(name, CURVE, 1, epoch=EPOCH, remaining=2 * EPOCH) for name in names]
    books = Recorder(
        LiveState(Cluster((devices,)), [JobRecord.of(job, "data/0") for job in jobs], seed=0), Journal(None, clock)
    )
    machine = Telling(clock)
    outside = outside(machine) if outside else RunHooks()
    Coordinator(chosen, machine, books, outside, math.inf, math.inf, following=machine).run()
    assert all(job.status == "done" for job in books.state.jobs.values())
    return machine


@pytest.mark.parametrize("name", ["local", "flotilla", "baseline"])
def test_networks_in_their_last_epochs_are_followed_by_those_that_the_policy_starts_then(name: str) -> None:
    machine = coordinated("abcdef", policy(name), 2)
    assert {job for _, job in machine.starts[2:]} == {job for _, job, _ in machine.told} and not machine.called_off
    started = {job: when for when, job in machine.starts}
    assert all(started[job] == when + 1.0 for when, job, _ in machine.told), "told at the last epoch's beginning"


def test_a_network_that_is_stopped_by_name_is_called_off_and_follows_later() -> None:
    class Stopping(RunHooks):
        """Wants the first network stopped that is told to follow, until it is called off."""

        def __init__(self, machine: Telling) -> None:
            self.machine = machine

        def halted(self) -> tuple[str, ...]:
            told = self.machine.told
            return (told[0][1],) if told and not self.machine.called_off else ()

    machine = coordinated("abc", Wavering(), 1, Stopping)
    assert machine.called_off == [machine.told[0][1]]
    assert sorted(job for _, job in machine.starts) == ["a", "b", "c"]
