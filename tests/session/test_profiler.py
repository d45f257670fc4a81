"""Measurements on free devices, on one rank that answers for all: what is asked, booked and given up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count

import pytest

from fleet.coordination.failures import CannotGoOnError
from fleet.coordination.mailbox import Mailbox
from fleet.coordination.protocol import (
    TO_COORDINATOR,
    TO_TRAINER,
    KeepBusy,
    Left,
    Profiled,
    ProfileGroup,
    StopRequested,
)
from fleet.machine.cluster_map import ClusterMap
from fleet.machine.launch.launched import StopFlag
from fleet.session.measuring import Effort, Measurement, MeasurementResult, Profiler, Waiting
from fleet.workers.rank import Rank

RATE = 100.0
EFFORT = Effort(batches=48, timed=20, seconds=8.0)


@dataclass
class Machine:
    """Trainers that all sit on this rank, and answer as soon as rank 0 waits for them."""

    rank: Rank
    late: bool = False
    failing: frozenset[str] = frozenset()
    answers: bool = True
    stop: StopFlag = field(default_factory=StopFlag)
    asked: list[ProfileGroup] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)

    def answer(self) -> None:
        """Called while rank 0 waits: all measurements that it has asked for are over."""
        box = Mailbox(self.rank.world, TO_TRAINER)
        while (order := box.poll()) is not None:
            if isinstance(order, KeepBusy):
                self.busy.append(order.job)
                continue
            assert isinstance(order, ProfileGroup)
            if order not in self.asked:
                self.asked.append(order)
                self._answer_one(order)

    def _answer_one(self, order: ProfileGroup) -> None:
        send = Mailbox(self.rank.world, TO_COORDINATOR).send
        why = "failed" if order.job in self.failing else "profiled"
        if why == "profiled":
            rate = RATE * len(order.members)
            send(0, TO_COORDINATOR, Profiled(order.job, len(order.members), rate, order.timed, 1.0, 0.5))
        for member in order.members:
            send(0, TO_COORDINATOR, Left(order.job, member, why, error="it cannot" if why == "failed" else ""))  # type: ignore[arg-type]

    def profiler(self, silence: float = 30.0) -> Profiler:
        def failure() -> None:
            if self.answers:
                self.answer()

        waiting = Waiting(silence, failure, self.stop, lambda skipped: None)
        tags, mailbox = count(1000, 2), self.rank.mailbox(TO_COORDINATOR)
        return Profiler(mailbox, self.rank.cluster, EFFORT, waiting, lambda: next(tags), lambda seconds: self.late)


@pytest.fixture
def machine(rank: Callable[..., Rank], cluster: Callable[..., ClusterMap]) -> Callable[..., Machine]:
    def make(trainers: int, members: int = 1, **options: object) -> Machine:
        places = cluster(trainers=trainers).places
        here = ClusterMap(tuple(replace(place, rank=0) for place in places), members)
        return Machine(rank(cluster=here), **options)  # type: ignore[arg-type]

    return make


def measured(results: Iterator[MeasurementResult]) -> dict[tuple[str, int], float]:
    return {(each.measurement.job, each.measurement.count): each.rate for each in results}


def test_each_measurement_has_its_rate(machine: Callable[..., Machine]) -> None:
    wanted = [Measurement("a", 1), Measurement("b", 1), Measurement("a", 2)]
    found = measured(machine(2).profiler().measure(wanted))
    assert found == {("a", 1): RATE, ("b", 1): RATE, ("a", 2): 2 * RATE}


def test_measurements_run_beside_each_other_on_devices_of_their_own(machine: Callable[..., Machine]) -> None:
    here = machine(3)
    results = {
        each.measurement.job: each for each in here.profiler().measure([Measurement("a", 2), Measurement("b", 1)])
    }
    assert (results["a"].devices, results["b"].devices) == ((0, 1), (2,))
    assert [order.batches for order in here.asked] == [48, 48]
    assert len({order.tag for order in here.asked}) == 2


@pytest.mark.parametrize("members, busy", [(1, []), (3, ["a", "a", "", ""])])
def test_who_shares_the_device_of_what_is_measured_trains_beside_it(
    machine: Callable[..., Machine], members: int, busy: list[str]
) -> None:
    here = machine(3, members)
    assert measured(here.profiler().measure([Measurement("a", 1)])) == {("a", 1): RATE}
    here.answer()
    assert here.busy == busy


def test_what_a_batch_takes_is_asked_for(machine: Callable[..., Machine]) -> None:
    here = machine(1)
    list(here.profiler().measure([Measurement("a", 1, batch_size=16)]))
    assert here.asked[0].batch_size == 16


def test_a_job_that_fails_is_measured_no_further_and_the_others_are(machine: Callable[..., Machine]) -> None:
    here = machine(1, failing=frozenset({"a"}))
    results = list(here.profiler().measure([Measurement("a", 1), Measurement("b", 1), Measurement("a", 1)]))
    assert [(each.measurement.job, each.failure is not None) for each in results] == [("a", True), ("b", False)]


def test_no_measurement_begins_once_there_is_no_time(machine: Callable[..., Machine]) -> None:
    here = machine(1, late=True)
    assert list(here.profiler().measure([Measurement("a", 1)])) == []
    assert here.asked == []


def test_a_wish_to_stop_of_another_rank_is_heard(machine: Callable[..., Machine]) -> None:
    here = machine(1)
    here.rank.mailbox(TO_TRAINER).send(0, TO_COORDINATOR, StopRequested(1))
    profiler = here.profiler()
    list(profiler.measure([Measurement("a", 1)]))
    assert profiler.is_stopped


def test_a_group_that_says_nothing_ends_the_run(machine: Callable[..., Machine]) -> None:
    with pytest.raises(RuntimeError, match=r"no word for 0 s from a on devices \(0,\)"):
        list(machine(1, answers=False).profiler(silence=0.1).measure([Measurement("a", 1)]))


def test_preprocessors_that_say_nothing_end_the_run_with_advice(machine: Callable[..., Machine]) -> None:
    with pytest.raises(
        CannotGoOnError, match="no word for 0.1 s from the preprocessors of rank 0.*raise resources.timeout"
    ):
        machine(1).profiler(silence=0.1).throughput(["numbers"], [1], 0.5)


def test_what_ends_the_run_here_is_raised(machine: Callable[..., Machine]) -> None:
    here = machine(1)
    waiting = Waiting(30.0, lambda: OSError("the disk is full"), here.stop, lambda skipped: None)
    profiler = Profiler(
        here.rank.mailbox(TO_COORDINATOR), here.rank.cluster, EFFORT, waiting, lambda: 0, lambda s: False
    )
    with pytest.raises(OSError, match="the disk is full"):
        list(profiler.measure([Measurement("a", 1)]))
