"""Rank 0's loop over a machine that does at once what it is told."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from fleet.coordination.coordinator import Coordinator
from fleet.coordination.executor import Event, GroupEnded, RunHooks, Started, StopReason
from fleet.coordination.failures import SilentGroupError
from fleet.coordination.job_record import JobRecord
from fleet.coordination.live_state import LiveState, Recorder
from fleet.coordination.protocol import AtStep, Start
from fleet.journal.journal import Journal, as_json
from fleet.scheduling.model.batch_scaling import BatchRange
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, Policy, PolicyTrigger, State, Trigger
from fleet.scheduling.model.rates import RateCurve
from fleet.spec.policies import policy
from trainers.task.batch_plan import BatchChange, BatchSchedule

CURVE = RateCurve({1: 10.0}, per_node=2)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Obedient:
    """Each group is done a second after its start, or stopped as soon as it is told to."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.starts: list[tuple[float, str]] = []
        self.running: dict[str, tuple[float, Start]] = {}
        self.stopped: list[Event] = []
        self.ends: dict[str, float] = {}  # job -> seconds after its start, if it is not one

    def start(self, batch: tuple[Start, ...], round_: int, share: bool) -> tuple[Started, ...]:
        for start in batch:
            self.starts.append((self.clock.now, start.job))
            self.running[start.job] = self.clock.now + self.ends.get(start.job, 1.0), start
        return tuple(Started(start.job, 0, "data/0") for start in batch)

    def stop(self, job: str, why: StopReason) -> None:
        _, start = self.running.pop(job)
        self.stopped.append(GroupEnded(job, start.devices, "stopped", why, start.epoch, start.step + 1))

    def measure(self, job: str, devices: tuple[int, ...]) -> None:
        raise AssertionError("all jobs have rates")

    def save_held(self) -> bool:
        return False

    def next_event(self, timeout: float) -> Event | None:
        if self.stopped:
            return self.stopped.pop(0)
        end, job = min(((end, job) for job, (end, _) in self.running.items()), default=(math.inf, ""))
        if end > self.clock.now + timeout:
            self.clock.now += timeout
            return None
        self.clock.now = end
        _, start = self.running.pop(job)
        return GroupEnded(job, start.devices, "done", "epochs", 3, 0)


class Bounded:
    """FLEET's baseline, with a bound."""

    name, shares_streams, trigger = "bounded", False, Trigger()

    def plan(self, state: State) -> Plan:
        return replace(policy("baseline").plan(state), bound=5.0, end=7.0)


class Anxious:
    """FLEET's baseline, which promises the job `a` its deadline, and says that it will be late by so many seconds."""

    name, shares_streams, trigger = "anxious", False, Trigger()

    def __init__(self, late: float) -> None:
        self._late = late

    def plan(self, state: State) -> Plan:
        plan = policy("baseline").plan(state)
        job = state.by_name["a"]
        return replace(plan, admitted=() if job.admitted else ("a",), late={"a": job.deadline + self._late})


def coordinated(
    jobs: list[JobState], chosen: Any, outside: RunHooks | None = None
) -> tuple[Obedient, LiveState, list[Any]]:
    """The machine, the books and the journal's events at the end."""
    clock, events = Clock(), list[Any]()
    journal = Journal(None, clock)
    journal.listen(lambda event: events.append(as_json(event)))
    ledger, machine = LiveState(Cluster((2,)), [JobRecord.of(job, "data/0") for job in jobs], seed=0), Obedient(clock)
    Coordinator(chosen, machine, Recorder(ledger, journal), outside or RunHooks(), math.inf, math.inf).run()
    return machine, ledger, events


class Told(RunHooks):
    """Who was told of which batch."""

    def __init__(self) -> None:
        self.jobs: list[str] = []

    def tell_batch(self, job: str) -> None:
        self.jobs.append(job)


class Patient(Obedient):
    """Groups stop in the middle of an epoch as soon as they are told to, but for one that is to end its epoch."""

    def stop(self, job: str, why: StopReason) -> None:
        super().stop(job, why)
        if why == "epoch":
            group = self.stopped[-1]
            assert isinstance(group, GroupEnded)
            self.stopped[-1] = replace(group, epoch=group.epoch + 1, step=0)


class Growing:
    """Gives a job one device and 20 samples a step; once another has come and gone, two devices and 40."""

    name, shares_streams, trigger = "growing", False, Trigger()

    def plan(self, state: State) -> Plan:
        if "short" in state.by_name:
            return Plan({"long": (0,), "short": (1,)}, batches={"long": 20})
        return Plan({"long": (0, 1)}, batches={"long": 40})


def test_a_batch_changes_at_the_end_of_the_epoch_in_which_it_is_wanted() -> None:
    clock, events, outside = Clock(), list[Any](), Told()
    journal, machine = Journal(None, clock), Patient(clock)
    journal.listen(lambda event: events.append(as_json(event)))
    long = JobState("long", RateCurve({1: 10.0, 2: 15.0}, per_node=2), 2, batch=10, remaining=300, epoch=100)
    range_, schedule = BatchRange(10, 40, 2), BatchSchedule(5, "linear", 0.0, 100)
    records = [
        JobRecord.of(long, "data/0", range_, schedule),
        JobRecord.of(JobState("short", CURVE, 1, batch=10), "data/1"),
    ]
    ledger = LiveState(Cluster((2,)), records, seed=0)
    machine.ends["long"] = 2.0
    Coordinator(Growing(), machine, Recorder(ledger, journal), outside, math.inf, math.inf).run()  # type: ignore[arg-type]
    told = [
        (event["event"], event.get("batch", event.get("why")), event["epoch"], event.get("step"))
        for event in events
        if event.get("job") == "long" and event["event"] in ("batch", "started", "stopped")
    ]
    assert told == [
        ("batch", 20, 0, None),
        ("started", None, 0, 0),
        ("stopped", "policy", 0, 1),
        ("started", None, 0, 1),  # on two devices, with the old batch
        ("stopped", "epoch", 1, 0),
        ("batch", 40, 1, None),
        ("started", None, 1, 0),
    ]
    assert ledger.jobs["long"].schedule == schedule.changed(BatchChange(0, 10)).changed(BatchChange(1, 20))
    assert set(outside.jobs) == {"long"} and ledger.status == "done"


class Wavering(Policy):
    """Moves `b` to the first device as `c` comes; then, as `d` comes, lets it stay where it was."""

    def plan(self, state: State) -> Plan:
        wanted = {"a": (0,), "b": (1,)}
        if "d" in state.by_name:
            wanted = {"b": (1,), "d": (0,), "c": (0,), "a": (0,)}
        elif "c" in state.by_name:
            wanted = {"b": (0,), "c": (1,)}
        free, chosen = set(range(2)), dict[str, tuple[int, ...]]()
        for name, devices in wanted.items():
            if name in state.by_name and free.issuperset(devices):
                chosen[name] = devices
                free.difference_update(devices)
        return Plan(chosen)


def test_a_job_that_leaves_while_a_new_plan_keeps_it_begins_again_where_it_was() -> None:
    class Late(RunHooks):
        """`d` comes when `a` has left, and `b` has not."""

        def take_in(self) -> None:
            came = "c" in ledger.jobs and "d" not in ledger.jobs
            if came and "a" not in ledger.running and "b" in ledger.running and clock.now >= 0.5:
                ledger.added(JobRecord.of(JobState("d", CURVE, 1), "data/0"))

    clock = Clock()
    journal, machine = Journal(None, clock), Obedient(clock)
    jobs = [JobState("a", CURVE, 1), JobState("b", CURVE, 1), JobState("c", CURVE, 1, arrival=0.5)]
    ledger = LiveState(Cluster((2,)), [JobRecord.of(job, "data/0") for job in jobs], seed=0)
    Coordinator(Wavering(), machine, Recorder(ledger, journal), Late(), math.inf, math.inf).run()
    assert machine.starts[:4] == [(0.0, "a"), (0.0, "b"), (0.5, "b"), (0.5, "d")]
    assert ledger.status == "done" and sorted(ledger.jobs) == ["a", "b", "c", "d"]


def test_a_job_begins_when_it_arrives() -> None:
    jobs = [JobState("a", CURVE, 1), JobState("late", CURVE, 1, arrival=40.0)]
    machine, ledger, _ = coordinated(jobs, policy("baseline"))
    assert machine.starts == [(0.0, "a"), (40.0, "late")] and ledger.status == "done"


def test_a_plans_bound_stands_in_the_journal_where_it_is_known() -> None:
    for chosen, bound, end in ((Bounded(), 5.0, 7.0), (policy("baseline"), None, None)):
        *_, events = coordinated([JobState("a", CURVE, 1)], chosen)
        (planned,) = (event for event in events if event["event"] == "planned")
        assert (planned.get("bound_seconds"), planned.get("end_seconds")) == (bound, end)


def test_a_job_from_outside_is_trained_though_all_others_are_done() -> None:
    class Offering(RunHooks):
        ledger: LiveState | None = None

        def take_in(self) -> None:
            if self.ledger is not None and not self.ledger.unfinished and "b" not in self.ledger.jobs:
                self.ledger.added(JobRecord.of(JobState("b", CURVE, 1), "data/0"))

    outside, clock = Offering(), Clock()
    machine, journal = Obedient(clock), Journal(None, clock)
    ledger = outside.ledger = LiveState(Cluster((2,)), [JobRecord.of(JobState("a", CURVE, 1), "data/0")], seed=0)
    Coordinator(policy("baseline"), machine, Recorder(ledger, journal), outside, math.inf, math.inf).run()
    assert machine.starts == [(0.0, "a"), (1.0, "b")]


def test_a_stop_has_all_leave_once_and_leaves_their_places_in_the_books() -> None:
    class Stopping(RunHooks):
        def __init__(self) -> None:
            self.asked = 0

        def stop_requested(self) -> bool:
            self.asked += 1
            return self.asked > 1

    _, ledger, events = coordinated([JobState(name, CURVE, 1) for name in "ab"], policy("flotilla"), Stopping())
    assert [event["event"] for event in events].count("stopping") == 1
    assert not ledger.running and ledger.status == "stopped" and {job.step for job in ledger.unfinished} == {1}


class Slow(Obedient):
    """Each group takes ten times as long as was thought; it says so every second."""

    def start(self, batch: tuple[Start, ...], round_: int, share: bool) -> tuple[Started, ...]:
        self.begun = {start.job: self.clock.now for start in batch}
        started = super().start(batch, round_, share)
        self.running = {job: (self.clock.now + 30.0, start) for job, (_, start) in self.running.items()}
        return started

    def next_event(self, timeout: float) -> Event | None:
        ends = min((end for end, _ in self.running.values()), default=0.0)
        if self.stopped or self.clock.now + 1.0 >= ends:
            return super().next_event(math.inf)
        self.clock.now += 1.0
        job = next(iter(self.running))
        return AtStep(job, 0, int(self.clock.now - self.begun[job]), 30, 1.0)


def test_a_promise_that_a_slow_job_breaks_is_told_long_before_the_job_ends() -> None:
    clock, events = Clock(), list[Any]()
    journal = Journal(None, clock)
    journal.listen(lambda event: events.append(as_json(event)))
    job = JobState("a", CURVE, 1, deadline=20.0, remaining=30.0, epoch=30.0, batch=1)
    ledger, machine = LiveState(Cluster((1,)), [JobRecord.of(job, "data/0")], seed=0, margin=1.0), Slow(clock)
    chosen = policy("elasticflow", slot=1.0)
    Coordinator(chosen, machine, Recorder(ledger, journal), RunHooks(), math.inf, math.inf).run()
    told = [event for event in events if event["event"] in ("admitted", "late", "done")]
    assert [event["event"] for event in told] == ["admitted", "late", "done"]
    assert told[1]["t"] <= 4.0 and told[1]["deadline"] == 20.0 and 28.0 <= told[1]["end"] <= 31.0
    assert ledger.jobs["a"].result()["promise"] == {"status": "missed", "deadline": 20.0, "end": 30.0}


@pytest.mark.parametrize(("late", "told"), [(0.0, False), (0.004, False), (0.02, True), (math.inf, True)])
def test_a_job_is_told_to_be_late_only_by_as_much_as_is_shown(late: float, told: bool) -> None:
    jobs = [JobState("a", CURVE, 1, deadline=500.0, remaining=30.0)]
    _, ledger, events = coordinated(jobs, Anxious(late))
    assert ("late" in [event["event"] for event in events]) == told
    assert ledger.jobs["a"].result()["promise"]["status"] == "kept"


def test_the_policy_is_asked_by_its_trigger_and_not_while_all_leave() -> None:
    agenda = PolicyTrigger(Trigger(interval=10.0, events=2))
    assert agenda.next == -math.inf, "the first plan waits for nothing"
    agenda.planned(Plan(wake=50.0))
    assert agenda.next == 50.0
    agenda.happened(12.0, "a")
    assert agenda.next == 20.0 and agenda.changed == ("a",)
    agenda.happened(13.0, "b")
    assert agenda.next == 13.0, "enough has happened"
    agenda.clearing = True
    assert agenda.next == math.inf
    agenda.clearing = False
    agenda.planned(Plan())
    assert agenda.next == math.inf and agenda.changed == ()


class Mute(Obedient):
    """Its groups never say anything."""

    def next_event(self, timeout: float) -> Event | None:
        self.clock.now += timeout
        return None


class Waiting(RunHooks):
    """The groups on these devices only wait for others."""

    def __init__(self, *devices: int) -> None:
        self.devices = devices

    def waits(self, devices: tuple[int, ...]) -> bool:
        return set(devices) <= set(self.devices)


@pytest.mark.parametrize(("waiting", "blamed", "after"), [((0,), 1, 10.0), ((1,), 0, 10.0), ((0, 1), 1, 20.0)])
def test_the_silent_group_that_others_wait_for_is_to_blame(waiting: tuple[int, ...], blamed: int, after: float) -> None:
    """Where all only wait, the one that was started first is (a, on device 1), after twice the time."""
    jobs = [JobRecord.of(JobState(name, CURVE, 1), "data/0") for name in "ab"]
    clock = Clock()
    ledger, machine = LiveState(Cluster((2,)), jobs, seed=0), Mute(clock)
    books = Recorder(ledger, Journal(None, clock))
    with pytest.raises(SilentGroupError, match=f"on devices {blamed} has said nothing"):
        Coordinator(policy("flotilla"), machine, books, Waiting(*waiting), 10.0, 1.0).run()
    assert after < clock.now <= after + 2.0
