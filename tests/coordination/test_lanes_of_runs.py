"""Lanes as a policy sees them in a run, and a job that begins anew on its own devices to read with another."""

from __future__ import annotations

import math
from collections import deque
from typing import ClassVar

from fleet.coordination.coordinator import Coordinator
from fleet.coordination.executor import Event, GroupEnded, RunHooks, Started, StopReason
from fleet.coordination.job_record import JobRecord
from fleet.coordination.live_state import LiveState, Recorder
from fleet.coordination.protocol import Start
from fleet.journal.journal import Journal
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, Policy, State
from fleet.scheduling.model.rates import RateCurve


class Joining(Policy):
    """Starts one job, then has it begin anew where it is, beside another; keeps the lanes that it sees."""

    name: ClassVar[str] = "joining"
    shares_streams: ClassVar[bool] = True

    def __init__(self) -> None:
        self.asked = 0
        self.lanes: list[dict[str, int]] = []

    def plan(self, state: State) -> Plan:
        self.asked += 1
        self.lanes.append({job: state.by_name[job].lane for job in state.running})
        if self.asked == 1:
            return Plan({"first": (0,)}, lanes={"first": 0}, wake=state.time)
        if self.asked == 2:
            return Plan({"first": (0,), "second": (1,)}, others_go_on=True, lanes={"first": 0, "second": 0})
        return Plan(others_go_on=True)


class Opening:
    """Gives the jobs that read together a fresh lane; whoever is not stopped is done, one after another."""

    def __init__(self) -> None:
        self.starts: list[list[str]] = []
        self._running: dict[str, tuple[int, ...]] = {}
        self._stopped: deque[Event] = deque()

    def start(self, batch: tuple[Start, ...], round_: int, share: bool) -> tuple[Started, ...]:
        self.starts.append([start.job for start in batch])
        self._running |= {start.job: start.devices for start in batch}
        return tuple(Started(start.job, 10 * len(self.starts) + start.lane_group, "data/0/0") for start in batch)

    def stop(self, job: str, why: StopReason) -> None:
        self._stopped.append(GroupEnded(job, self._running.pop(job), "stopped", "policy", 0, 1))

    def measure(self, job: str, devices: tuple[int, ...]) -> None:
        raise AssertionError("all jobs have rates")

    def save_held(self) -> bool:
        return False

    def next_event(self, timeout: float) -> Event | None:
        if self._stopped:
            return self._stopped.popleft()
        if len(self.starts) < 2:
            return None
        job = next(iter(self._running))
        return GroupEnded(job, self._running.pop(job), "done", "epochs", 1, 0)


def test_a_job_begins_anew_to_read_with_another_and_policies_see_who_reads_together() -> None:
    chosen, machine = Joining(), Opening()
    states = [JobState(name, RateCurve({1: 10.0}, 2), 1) for name in ("first", "second")]
    books = LiveState(Cluster((2,)), [JobRecord.of(state, "data/0") for state in states], seed=0)
    bookkeeper = Recorder(books, Journal(None, lambda: 0.0))
    Coordinator(chosen, machine, bookkeeper, RunHooks(), math.inf, math.inf).run()
    assert machine.starts == [["first"], ["first", "second"]]
    assert chosen.lanes[:2] == [{}, {"first": 10}] and {"second": 20} in chosen.lanes
    assert books.status == "done"
