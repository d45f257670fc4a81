"""Jobs that nobody has measured: the first steps of their groups tell their rates, and the policy hears of it once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from fleet.coordination.coordinator import Coordinator
from fleet.coordination.executor import Event, GroupEnded, RunHooks, Started, StopReason
from fleet.coordination.first_rates import PATIENCE_SECONDS, FirstRates
from fleet.coordination.job_record import JobRecord
from fleet.coordination.live_state import LiveState, Recorder, recall
from fleet.coordination.protocol import EpochEnded, Start, StepsTimed
from fleet.journal.journal import Journal, as_json
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.spec.policies import policy
from tests.journals import as_events

SECONDS = 0.25  # after which a group has told how fast it trains


@dataclass
class _Group:
    start: Start
    since: float
    told: bool = False


@dataclass
class Truthful:
    """Groups train as fast as `rates` say, tell that after a moment, and leave as soon as they are told to.

    Those that are mute tell it with the end of their first epoch, after so many seconds.
    """

    rates: Mapping[str, Mapping[int, float]]
    samples: dict[str, float]
    mute: frozenset[str] = frozenset()
    epoch: float = math.inf
    now: float = 0.0
    groups: dict[str, _Group] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    begun: list[tuple[str, int]] = field(default_factory=list)  # who began on how many devices

    def clock(self) -> float:
        return self.now

    def start(self, batch: tuple[Start, ...], round_: int, share: bool) -> tuple[Started, ...]:
        for start in batch:
            self.groups[start.job] = _Group(start, self.now)
            self.begun.append((start.job, len(start.devices)))
        return tuple(Started(start.job, 0, "data/0") for start in batch)

    def measure(self, job: str, devices: tuple[int, ...]) -> None:
        raise AssertionError("all jobs have rates")

    def stop(self, job: str, why: StopReason) -> None:
        group = self.groups.pop(job, None)
        if group is not None:
            self.samples[job] -= (self.now - group.since) * self._rate(group)
            self.events.append(GroupEnded(job, group.start.devices, "stopped", why, 0, 0))

    def save_held(self) -> bool:
        return False

    def next_event(self, timeout: float) -> Event | None:
        if self.events:
            return self.events.pop(0)
        coming = [(self._tells(group), job, True) for job, group in self.groups.items()]
        coming += [(self._ends(group), job, False) for job, group in self.groups.items()]
        at, job, tells = min(coming, default=(math.inf, "", False))
        if at > self.now + timeout:
            self.now += timeout
            return None
        self.now = at
        group = self.groups[job]
        if tells:
            group.told = True
            if job in self.mute:
                return EpochEnded(job, 1, 10, self.epoch, self._rate(group), {}, 0.1, (0.0,), (0.0,), (self.epoch,))
            return StepsTimed(job, self._rate(group), 20, SECONDS)
        del self.groups[job]
        return GroupEnded(job, group.start.devices, "done", "epochs", 1, 0)

    def _rate(self, group: _Group) -> float:
        return self.rates[group.start.job][len(group.start.devices)]

    def _tells(self, group: _Group) -> float:
        return math.inf if group.told else group.since + (self.epoch if group.start.job in self.mute else SECONDS)

    def _ends(self, group: _Group) -> float:
        return group.since + self.samples[group.start.job] / self._rate(group)


def linear(single: float, limit: int = 2, kept: float = 0.95) -> dict[int, float]:
    return {count: single * count * kept ** (count - 1) for count in range(1, limit + 1)}


def trained(
    rates: Mapping[str, Mapping[int, float]], guesses: Mapping[str, float], name: str = "flotilla", devices: int = 2,
    mute: frozenset[str] = frozenset(), seconds: float = 20.0, outside: RunHooks | None = None, epoch: float = math.inf,
) -> tuple[Truthful, LiveState, list[Any]]:  # fmt: skip
    """Each job has so many seconds of work on one device; the machine, the books and the journal at the end."""
    machine = Truthful(rates, {job: seconds * known[1] for job, known in rates.items()}, mute, epoch)
    events = list[Any]()
    journal = Journal(None, machine.clock)
    journal.listen(lambda event: events.append(as_json(event)))
    records = [
        JobRecord.of(
            JobState(job, RateCurve({1: 1.0}, 1), max(known), remaining=seconds * known[1], data="data"), "data/0"
        )
        for job, known in rates.items()
    ]
    ledger = LiveState(Cluster((devices,)), records, seed=0)
    keeper = Recorder(ledger, journal)
    for job, guess in guesses.items():
        curve = RateCurve({1: guess}, per_node=devices, workers=ledger.jobs[job].limit)
        keeper.record_rates(job, {"": curve}, "guessed")
    Coordinator(policy(name), machine, keeper, outside or RunHooks(), math.inf, 1.0).run()
    return machine, ledger, events


def of_kind(events: list[Any], kind: str) -> list[Any]:
    return [event for event in events if event["event"] == kind]


def test_first_steps_replace_a_guess() -> None:
    rates = {"a": linear(100.0), "b": linear(60.0)}
    _, ledger, events = trained(rates, {"a": 1000.0, "b": 900.0})
    for job in rates:
        assert not ledger.jobs[job].guessed
        assert (curve := ledger.jobs[job].curve) is not None and curve.measured[1] == pytest.approx(rates[job][1])
    assert {event["job"] for event in of_kind(events, "timed")} == {"a", "b"}


def test_who_gets_several_devices_is_timed_on_one_first_where_that_can_change_the_plan() -> None:
    """The fast one would be paced by the slow one on one device each: the plan gives the slow one two."""
    rates = {"fast": linear(100.0, 3), "slow": linear(50.0)}
    machine, ledger, events = trained(rates, {"fast": 100.0, "slow": 50.0}, devices=3)
    assert machine.begun[:2] == [("fast", 1), ("slow", 1)] and ("slow", 2) in machine.begun
    first = next(event for event in of_kind(events, "started") if event["job"] == "slow")
    assert len(first["devices"]) == 1 and len(first["kept"]) == 2
    assert (curve := ledger.jobs["slow"].curve) is not None and {1, 2} <= curve.measured.keys()
    assert 0 < ledger.overhead["profiling"] < 2 * SECONDS, "a device waited meanwhile"
    again = [event["job"] for event in of_kind(events, "started") if event["round"] == 1]
    assert sorted(again) == ["fast", "slow"], "they go on reading together"


def test_an_only_job_begins_where_it_stays() -> None:
    machine, _, events = trained({"a": linear(100.0)}, {"a": 10.0})
    assert machine.begun == [("a", 2)] and not any("kept" in event for event in of_kind(events, "started"))


def test_a_policy_that_does_not_go_by_rates_has_nobody_timed_on_one_device() -> None:
    machine, _, _ = trained({"a": linear(100.0), "b": linear(50.0)}, {"a": 10.0, "b": 10.0}, "fifo")
    assert machine.begun == [("a", 2), ("b", 2)]


def test_who_never_tells_gets_its_other_devices_all_the_same() -> None:
    rates = {"fast": linear(100.0, 3), "slow": linear(50.0)}
    machine, ledger, events = trained(rates, {"fast": 100.0, "slow": 50.0}, devices=3, mute=frozenset({"slow"}))
    assert ("slow", 2) in machine.begun
    assert ledger.status == "done" and not [event for event in of_kind(events, "timed") if event["job"] == "slow"]


@pytest.mark.parametrize(
    "name", ["flotilla", "local", "throughput", "fifo", "tiresias", "themis", "optimus", "gandiva"]
)
def test_plans_are_made_once_for_what_is_learnt(name: str) -> None:
    """Nobody is moved back and forth: for each rate that is told there is one plan at most beside those at ends."""
    rates = {f"job-{index}": linear(30.0 * (index + 1), 4, 0.9) for index in range(8)}
    guesses = {job: 1000.0 / (index + 1) for index, job in enumerate(rates)}
    machine, ledger, events = trained(rates, guesses, name, devices=4)
    assert ledger.status == "done"
    timed = len(of_kind(events, "timed"))
    assert timed > 0 and len(machine.begun) <= 8 + 4 * (timed + 8)


def test_a_flotilla_whose_members_were_guessed_wrong_is_formed_anew() -> None:
    """Two that were thought alike are not: a tenth more work gets done with a third in place of one of them."""
    rates = {"a": linear(100.0, 1), "b": linear(20.0, 1), "c": linear(95.0, 1)}
    machine, _, events = trained(rates, {"a": 100.0, "b": 99.0, "c": 90.0})
    assert [job for job, _ in machine.begun[:2]] == ["a", "b"]
    second = next(event for event in of_kind(events, "planned") if event["round"] == 1)
    assert sorted(second["allocation"]) == ["a", "c"] and second["t"] < 1.0


def test_an_epoch_tells_as_much_where_nobody_waits_for_it_any_more() -> None:
    """Samples come so slowly that an epoch is over before enough steps are: then the policy hears of the epoch."""
    rates = {"a": linear(100.0, 1), "b": linear(20.0, 1), "c": linear(95.0, 1)}
    late = PATIENCE_SECONDS + 2
    _, ledger, events = trained(rates, {"a": 100.0, "b": 99.0, "c": 90.0}, mute=frozenset(rates), epoch=late)
    second = next(event for event in of_kind(events, "planned") if event["round"] == 1)
    assert sorted(second["allocation"]) == ["a", "c"] and second["t"] == pytest.approx(late, abs=0.5)
    assert ledger.status == "done"


class Guessing(RunHooks):
    """Guesses anew, from what it was told."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def guess(self, job: str) -> float | None:
        return {"c": 90.0, "d": 45.0}[job] * self.factor


def test_others_are_guessed_anew_once_it_is_known_how_fast_the_device_is() -> None:
    rates = {"a": linear(10.0, 1), "b": linear(9.0, 1), "c": linear(9.0, 1), "d": linear(4.0, 1)}
    guesses = {"a": 100.0, "b": 99.0, "c": 90.0, "d": 45.0}
    _, _, events = trained(rates, guesses, outside=Guessing(0.1))
    (line,) = of_kind(events, "guesses")
    assert line["rates"] == {"c": 9.0, "d": 4.5} and line["t"] > 0, "one line tells of all"
    _, _, events = trained(rates, guesses, outside=Guessing(0.9))
    assert not of_kind(events, "guesses")


def test_the_journal_brings_the_books_to_where_they_were() -> None:
    rates = {"fast": linear(100.0, 3), "slow": linear(50.0)}
    _, ledger, events = trained(rates, {"fast": 100.0, "slow": 50.0}, devices=3)
    again = LiveState(ledger.cluster, [JobRecord.of(job.state, "data/0") for job in ledger.jobs.values()], seed=0)
    recall(again, as_events(events))
    assert again.overhead["profiling"] == pytest.approx(ledger.overhead["profiling"])
    assert {job.name: job.status for job in again.jobs.values()} == {"fast": "done", "slow": "done"}
    assert again.held == {} and not any(job.guessed for job in again.jobs.values())


def test_trials_end_once_they_have_cost_enough() -> None:
    rates = {"fast": linear(100.0, 3), "slow": linear(50.0)}
    machine = Truthful(rates, {"fast": 1e6, "slow": 1e6})
    ledger = LiveState(
        Cluster((3,)),
        [
            JobRecord.of(JobState(job, RateCurve({1: 1.0}, 1), len(known), remaining=1e6, data="data"), "data/0")
            for job, known in rates.items()
        ],
        seed=0,
    )
    keeper = Recorder(ledger, Journal(None, machine.clock))
    for job, rate in {"fast": 100.0, "slow": 50.0}.items():
        keeper.record_rates(job, {"": RateCurve({1: rate}, per_node=3, workers=len(rates[job]))}, "guessed")
    first, chosen = FirstRates(keeper, RunHooks()), policy("flotilla")
    plan = chosen.plan(ledger.for_policy(0.0))
    first.choose(chosen, ledger.for_policy(0.0), plan)
    assert first.begins_on("slow", plan.allocation["slow"]) == plan.allocation["slow"][:1]
    ledger.charged("profiling", 5.0)
    first.choose(chosen, ledger.for_policy(100.0), plan)
    assert first.begins_on("slow", plan.allocation["slow"]) == plan.allocation["slow"]
