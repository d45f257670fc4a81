"""From measurements to rate curves, and how many preprocessors those need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fleet.coordination.live_state import LiveState, Recorder
from fleet.coordination.protocol import Left
from fleet.journal.journal import Journal
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.rates import RateCurve
from fleet.session.books import Batches, WallClock, record_of
from fleet.session.measuring import Measurement, MeasurementResult, Rating
from fleet.workers.rank import Rank
from fleet.workers.runtime import Runtime
from preprocess.making.costs import MadeRates
from tests.journals import read_lines

PER_NODE = 2


@dataclass
class Measured:
    """Stands for the machine: jobs train so many samples/s a device; what is unknown raises."""

    rates: Mapping[str, float]
    makes: float = 1000.0  # samples/s of one preprocessor
    stops_after: int = 100
    asked: list[Measurement] = field(default_factory=list)

    @property
    def is_stopped(self) -> bool:
        return len(self.asked) >= self.stops_after

    def measure(self, wanted: Iterable[Measurement]) -> Iterator[MeasurementResult]:
        for each in wanted:
            if self.is_stopped:
                return
            self.asked.append(each)
            devices = tuple(range(each.count))
            if each.job in self.rates:
                yield MeasurementResult(
                    each, devices, self.rates[each.job] * each.count, 20, 1.0, forming=0.25 * each.count
                )
            else:
                yield MeasurementResult(
                    each, devices, 0.0, 0, 0.0, Left(each.job, 0, "failed", error="ValueError: it is broken")
                )

    def throughput(self, data: object, counts: Iterable[int], seconds: float) -> dict[int, MadeRates]:
        return {count: MadeRates(self.makes * count / 2, self.makes * count) for count in counts}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl")


@pytest.fixture
def rating(journal: Journal, runtime: Callable[..., Runtime], rank: Callable[..., Rank]) -> Any:
    """Of the jobs `a` and `b`, or of those that are named with their virtual workers, on two nodes of two devices."""

    def make(profiler: Any, known: Any = None, begun: Any = None, **workers: int) -> Rating:
        jobs = [{"name": name, "virtual_workers": count} for name, count in (workers or {"a": 4, "b": 4}).items()]
        made = runtime(*jobs)
        batches = Batches(rank(made), lambda news: None, open=False)
        records = [
            record_of(job, made, rank(made).cluster, batches, WallClock(((0.0, 0.0),))) for job in made.spec.jobs
        ]
        books = LiveState(Cluster((PER_NODE, PER_NODE)), records, seed=0)
        return Rating(profiler, Recorder(books, journal), {"": known or {}}, {"": begun or {}})

    return make


def events(tmp_path: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in read_lines(tmp_path / "journal.jsonl") if event["event"] == kind]


def curve(rating: Rating, job: str) -> Any:
    return rating.books.state.jobs[job].curve


def test_each_job_is_measured_alone_then_wider(rating: Any) -> None:
    machine = Measured({"a": 10.0, "b": 20.0})
    made = rating(machine)
    made.rate()
    assert machine.asked[:2] == [Measurement("a", 1), Measurement("b", 1)]
    assert {each.count for each in machine.asked[2:]} == {2, 3, 4}
    assert float(curve(made, "a")(4)) == pytest.approx(40.0)
    assert made.books.state.longest_forming == 1.0, "the widest group took longest to form"


def test_what_is_known_is_not_measured(rating: Any, tmp_path: Path) -> None:
    machine = Measured({"b": 20.0})
    made = rating(machine, known={"a": {1: 11.0, 2: 21.0}})
    made.rate()
    assert {each.job for each in machine.asked} == {"b"}
    assert float(curve(made, "a")(1)) == 11.0
    assert [event["source"] for event in events(tmp_path, "rates")] == ["file", "profile"]


def test_what_an_earlier_session_began_goes_on(rating: Any) -> None:
    machine = Measured({"a": 10.0})
    made = rating(machine, begun={"a": {1: 10.0, 2: 20.0}}, a=4)
    made.rate()
    assert machine.asked == [Measurement("a", 4), Measurement("a", 3)]


def test_a_session_that_is_stopped_rates_nobody_and_keeps_what_it_measured(rating: Any, tmp_path: Path) -> None:
    made = rating(Measured({"a": 10.0, "b": 20.0}, stops_after=1))
    made.rate()
    assert curve(made, "a") is None
    assert [event["job"] for event in events(tmp_path, "profile")] == ["a"]
    assert events(tmp_path, "rates") == []
    assert made.choose_preprocessors(["numbers"], 3, {}, True) == 3


def test_a_job_that_raises_gets_no_curve_and_the_others_do(rating: Any) -> None:
    made = rating(Measured({"a": 10.0}))
    made.rate()
    assert curve(made, "b") is None and curve(made, "a") is not None
    assert made.failures["b"].failure.error == "ValueError: it is broken"


@pytest.mark.parametrize(("rate", "chosen"), [(200.0, 1), (900.0, 2), (1900.0, 4)])
def test_the_fewest_preprocessors_that_meet_the_demand_are_used(rating: Any, rate: float, chosen: int) -> None:
    made = rating(Measured({"a": rate, "b": rate}))
    made.rate()
    streams = {"a": "numbers/0", "b": "numbers/1"}
    assert made.choose_preprocessors(["numbers"], 4, streams, True) == chosen


def test_a_demand_that_nobody_meets_is_told_with_the_mend(rating: Any, tmp_path: Path) -> None:
    made = rating(Measured({"a": 4000.0, "b": 4000.0}))
    made.rate()
    assert made.choose_preprocessors(["numbers"], 2, {"a": "numbers/0", "b": "numbers/1"}, True) == 2
    (warning,) = events(tmp_path, "warning")
    assert "they will wait for data; give about 8 preprocessors" in warning["text"]


def test_without_a_machine_only_what_is_known_counts(rating: Any) -> None:
    made = rating(None, known={"a": {1: 11.0}})
    made.rate()
    assert curve(made, "a") is not None and curve(made, "b") is None
    assert made.choose_preprocessors(["numbers"], 2, {}, True) == 2


def test_who_trains_by_a_guess_is_not_measured(rating: Any, tmp_path: Path) -> None:
    machine = Measured({"b": 20.0})
    made = rating(machine, known={"c": {1: 11.0}}, begun={"d": {1: 12.0}}, a=4, b=4, c=4, d=4)
    made.guess, made.first = (lambda job: {"": RateCurve({1: 7.0}, PER_NODE, workers=4)}), {"b"}
    made.rate()
    assert {each.job for each in machine.asked} == {"b"}
    sources = {event["job"]: (event["source"], event["measured"]["1"]) for event in events(tmp_path, "rates")}
    assert sources == {"a": ("guessed", 7.0), "b": ("profile", 20.0), "c": ("file", 11.0), "d": ("file", 12.0)}
    guessed = {name: job.guessed for name, job in made.books.state.jobs.items()}
    assert guessed == {"a": True, "b": False, "c": False, "d": False} and made.guessed == {"a"}
    assert made.choose_preprocessors(["numbers"], 3, {}, True) == 3, "nobody knows the demand"


@pytest.mark.parametrize(("weighed", "data", "timed"), [(True, 2, True), (True, 1, False), (False, 2, False)])
def test_one_preprocessor_is_timed_beside_guesses_where_a_policy_weighs_data_sets(
    rating: Any, tmp_path: Path, weighed: bool, data: int, timed: bool
) -> None:
    made = rating(Measured({}))
    made.guess, made.first = (lambda job: {"": RateCurve({1: 7.0}, PER_NODE, workers=1)}), set()
    made.rate()
    assert made.choose_preprocessors(["numbers", "words"][:data], 1, {}, False, weighed=weighed) == 1
    told = [set(event["of_data"]) for event in events(tmp_path, "preprocessors")]
    assert told == ([{"numbers", "words"}] if timed else [])


def test_all_that_is_known_can_be_stored(rating: Any) -> None:
    made = rating(Measured({"a": 10.0}), known={"b": {1: 7.0}})
    made.rate()
    profile = made.profile({"": {"a": "f-a", "b": "f-b"}})
    assert profile.rates["f-b"] == {1: 7.0} and profile.names == {"f-a": "a", "f-b": "b"}
    assert profile.rates["f-a"] == pytest.approx({1: 10.0, 2: 20.0, 3: 30.0, 4: 40.0})
