"""Under every policy others go on where a device is lost, and jobs all of whose kind are gone end the run in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import count

import pytest

from fleet.coordination.coordinator import Coordinator
from fleet.coordination.executor import Event, GroupEnded, RanksGone, RunHooks, Started, StopReason
from fleet.coordination.failures import RanksLost
from fleet.coordination.job_record import JobRecord, Standing
from fleet.coordination.live_state import LiveState, Recorder
from fleet.coordination.protocol import Start
from fleet.journal.journal import Journal
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.spec.policies import policy
from tests.scheduling.support.all_policies import NAMES

CURVE = RateCurve({1: 10.0}, 1)
LOST = 1
NAMES = NAMES


class LosesADevice:
    """Loses device 1 once a job trains there: the policy may be asked before that job's group has ended."""

    def __init__(self) -> None:
        self.starts: list[Start] = []
        self._events: list[Event] = []
        self._lost = False

    def start(self, batch: tuple[Start, ...], round_: int, share: bool) -> tuple[Started, ...]:
        self.starts += batch
        for start in batch:
            if LOST in start.devices and not self._lost:
                self._lost = True
                ended = GroupEnded(start.job, start.devices, "lost", "", start.epoch, start.step)
                self._events = [RanksGone((7,), ("n0",), (LOST,), all_leave=False), ended, *self._events]
            else:
                self._events.append(GroupEnded(start.job, start.devices, "done", "epochs", 3, 0))
        return tuple(Started(start.job, 0, "data/0") for start in batch)

    def stop(self, job: str, why: StopReason) -> None:
        """Its end is already on its way."""

    def measure(self, job: str, devices: tuple[int, ...]) -> None:
        raise AssertionError("all jobs have rates")

    def save_held(self) -> bool:
        return False

    def next_event(self, timeout: float) -> Event | None:
        return self._events.pop(0) if self._events else None


def coordinated(name: str, jobs: Sequence[JobState], kinds: tuple[str, ...] = ()) -> tuple[Coordinator, LosesADevice]:
    """A run of jobs on two devices, by a clock that goes on at each look."""
    clock = count()
    cluster = Cluster((1, 1), kinds) if kinds else Cluster((2,))
    books = LiveState(cluster, [JobRecord.of(job, f"data/{index}") for index, job in enumerate(jobs)], seed=0)
    for job in jobs:
        books.rated(job.name, dict.fromkeys(kinds or ("",), CURVE))
    machine, outside = LosesADevice(), RunHooks()
    outside.stands = lambda job: Standing()  # type: ignore[method-assign,assignment]
    keeper = Recorder(books, Journal(None, lambda: float(next(clock))))
    return Coordinator(policy(name), machine, keeper, outside, math.inf, math.inf), machine


def job(name: str, kind: str = "", mixed: bool = True) -> JobState:
    return JobState(name, CURVE, 1, remaining=100.0, epoch=10.0, batch=1, kind=kind, mixed_kinds=mixed)


@pytest.mark.parametrize("name", NAMES)
def test_on_devices_that_are_alike_all_are_done(name: str) -> None:
    run, machine = coordinated(name, [job("a"), job("b")])
    run.run()
    assert {record.status for record in run.state.jobs.values()} == {"done"}
    assert len(machine.starts) == 3


@pytest.mark.parametrize("name", NAMES)
def test_jobs_that_wait_for_a_kind_that_is_gone_end_the_run_once_the_others_are_done(name: str) -> None:
    jobs = [job("bound", "slow", mixed=False), job("free", "fast", mixed=False), job("next", "slow", mixed=False)]
    run, _ = coordinated(name, jobs, ("fast", "slow"))
    with pytest.raises(RanksLost, match=r"all devices of kind slow were lost, .*bound, next.* started again"):
        run.run()
    assert {name: record.status for name, record in run.state.jobs.items() if record.status != "pending"} == {
        "free": "done"
    }


@pytest.mark.parametrize("name", NAMES)
def test_jobs_that_may_train_elsewhere_do_so(name: str) -> None:
    run, _ = coordinated(name, [job("a"), job("b"), job("c")], ("fast", "slow"))
    run.run()
    assert {record.status for record in run.state.jobs.values()} == {"done"}
