"""How many preprocessors work is chosen anew at each re-forming, and written down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.coordination.coordinator import Feeding
from fleet.coordination.job_record import JobRecord
from fleet.coordination.job_table import fed_by
from fleet.coordination.live_state import HelperPreprocessors, LiveState, Recorder
from fleet.coordination.protocol import Start
from fleet.journal import events
from fleet.journal.journal import Journal
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.data_path import Lending
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve
from tests.journals import read_lines

PACES = {"a": 100.0, "b": 90.0, "c": 150.0}


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Recorder]:
    """Three jobs; `a` and `b` have one data set and seed."""
    streams = {"a": "data/0", "b": "data/0", "c": "other/0"}
    jobs = [JobRecord.of(JobState(name, RateCurve({1: PACES[name]}, 4), 1), streams[name]) for name in PACES]
    journal = Journal(tmp_path / "journal.jsonl", lambda: 0.0)
    yield Recorder(LiveState(Cluster((4,)), jobs, seed=0), journal)
    journal.close()


def measured(books: Recorder, **counts: float) -> None:
    books.record(
        events.Preprocessors(counts={int(name[1:]): rate for name, rate in counts.items()}, demand=1.0, chosen=1)
    )


def start(job: str, device: int, epoch: int = 0, lane: int = 0) -> Start:
    return Start(job, (device,), epoch, 0, False, (), lane)


def allocation(books: Recorder, starts: Sequence[Start]) -> dict[str, tuple[int, ...]]:
    """Who trains then, on which devices."""
    return {**books.state.running, **{start.job: start.devices for start in starts}}


def chosen(books: Recorder, share: bool, *starts: Start) -> int:
    (makers,) = {start.makers for start in Feeding(books, share).choose(0, starts, allocation(books, starts))}
    return makers


def lines(books: Recorder, tmp_path: Path) -> list[tuple[int, float, int, int]]:
    return [
        (line["round"], line["demand"], line["working"], line["available"])
        for line in read_lines(tmp_path / "journal.jsonl")
        if line["event"] == "preprocessing"
    ]


def test_those_who_read_together_are_fed_once(books: Recorder, tmp_path: Path) -> None:
    measured(books, n1=110.0, n2=200.0, n4=400.0)
    assert chosen(books, True, start("a", 0), start("b", 1)) == 1
    assert chosen(books, False, start("a", 0), start("b", 1)) == 2
    assert chosen(books, True, start("a", 0), start("b", 1, epoch=1)) == 2, "another epoch is another stream"
    assert chosen(books, True, start("a", 0), start("b", 1, lane=1)) == 2, "the policy keeps them apart"
    assert lines(books, tmp_path) == [(0, 100.0, 1, 4), *[(0, 190.0, 2, 4)] * 3]


def test_those_who_go_on_eat_too(books: Recorder) -> None:
    measured(books, n1=110.0, n2=200.0, n4=400.0)
    books.record(events.Started(round=0, job="a", devices=(0,), epoch=0, step=0, lane=3))
    assert chosen(books, True, start("c", 1)) == 3
    books.record(events.Stopped(job="a", devices=(0,), epoch=0, step=1, why="policy"))
    assert chosen(books, True, start("c", 1)) == 2


def test_all_work_where_they_make_too_little(books: Recorder) -> None:
    measured(books, n1=10.0, n2=20.0)
    assert chosen(books, True, start("a", 0)) == 2


def test_all_work_where_nobody_knows_or_there_is_one(books: Recorder, tmp_path: Path) -> None:
    assert chosen(books, True, start("a", 0)) == 0
    measured(books, n1=10.0)
    assert chosen(books, True, start("a", 0)) == 0
    assert lines(books, tmp_path) == []


def test_policies_see_what_can_be_fed_and_the_books_what_was_measured(books: Recorder) -> None:
    before = books.state.for_policy(0.0).by_name
    counts, of_data = {1: 8.0, 2: 15.0}, {"data": 7.5}
    books.record(events.Preprocessors(counts=counts, of_data=of_data, demand=1.0, chosen=2))
    jobs = {name: job.changed(data="other" if name == "c" else "data") for name, job in before.items()}
    for name, job in jobs.items():
        books.state.jobs[name] = replace(books.state.jobs[name], state=job)
    seen = books.state.for_policy(0.0).by_name
    assert {name: job.rate(1) for name, job in seen.items()} == {"a": 7.5, "b": 7.5, "c": 150.0}
    assert books.state.pace("a", (0,)) == 100.0, "what is learnt of it is not cut"


def test_speeds_hold_for_a_session(books: Recorder) -> None:
    measured(books, n1=110.0, n2=200.0)
    books.record(events.Session(session=1))
    assert books.state.data_path is None


def test_a_job_of_which_few_samples_are_its_own_eats_a_whole_stream(books: Recorder) -> None:
    measured(books, n1=110.0, n2=200.0, n4=400.0)
    assert chosen(books, True, start("b", 0)) == 1
    record = books.state.jobs["b"]
    books.state.jobs["b"] = replace(record, state=record.state.changed(passing=4.0))
    assert chosen(books, True, start("b", 0)) == 4
    assert books.state.feeds("b") == books.state.feeds("a") / 4


# trainers that help
# ---------------------------------------------------------------------------------------------------------------------


def lending(books: Recorder, lent: int, made: float = 110.0) -> Feeding:
    """One preprocessor, and a plan that counts with so many trainers."""
    books.state.helpers = HelperPreprocessors(Lending(1, 2))
    books.record(events.Preprocessors(counts={1: made}, of_data={"data": made}, demand=1.0, chosen=1))
    books.record(events.Planned(round=0, allocation={}, lent=lent))
    return Feeding(books, False)


def helpers(feeding: Feeding, *starts: Start) -> set[tuple[int, ...]]:
    return {start.prepared_by for start in feeding.choose(0, starts, allocation(feeding._recorder, starts))}


def test_as_many_trainers_help_as_the_demand_takes_and_the_plan_allows(books: Recorder, tmp_path: Path) -> None:
    feeding = lending(books, 2)
    assert helpers(feeding, start("a", 0)) == {()}, "one preprocessor makes 110"
    assert helpers(feeding, start("c", 0)) == {(3,)}
    assert helpers(feeding, start("c", 0), start("a", 3)) == {(2, 1)}
    books.record(events.RanksLost(devices=(2,)))
    assert helpers(feeding, start("c", 0), start("a", 3)) == {(1,)}
    books.record(events.Planned(round=0, allocation={}, lent=0))
    assert helpers(feeding, start("c", 0)) == {()}
    lines = [line for line in read_lines(tmp_path / "journal.jsonl") if line["event"] == "preprocessing"]
    assert [line.get("trainers") for line in lines] == [None, [3], [2, 1], [1]], (
        "nothing is to choose where nobody may help"
    )


def test_books_tell_who_prepares_for_whom(books: Recorder) -> None:
    feeding = lending(books, 1)
    books.record(events.Started(round=0, job="c", devices=(0,), epoch=0, step=0, lane=1, prepared_by=(2,)))
    assert books.state.feeds("a") == fed_by(books.state.data_path, books.state.jobs["a"]) * 2
    assert books.state.helpers.devices(books.state.running) == {2}
    assert helpers(feeding, start("a", 1)) == {(2,)}, "it has the data open"
    stay = {"c": (0,)}
    assert feeding.formed_anew({"a": (1,)}, {"a": (1,), **stay}, 0) == {"a": (1,)}, "lanes stay with their makers"
    assert feeding.formed_anew({"a": (2,)}, {"a": (2,), **stay}, 0) == {"a": (2,), **stay}, "but for one that is wanted"
    books.record(events.Stopped(job="c", devices=(0,), epoch=0, step=1, why="policy"))
    assert not books.state.helpers.devices(books.state.running)
    books.record(events.Session(session=1))
    assert books.state.helpers.counted == 0


@pytest.mark.parametrize(("made", "samples", "anew"), [(50.0, 1e4, True), (50.0, 10.0, False), (95.0, 1e4, False)])
def test_those_who_go_on_are_formed_anew_if_that_pays(books: Recorder, made: float, samples: float, anew: bool) -> None:
    feeding = lending(books, 1, made)
    books.state.jobs["a"] = replace(books.state.jobs["a"], samples=samples)
    books.state.longest_forming = 1.0
    books.record(events.Started(round=0, job="a", devices=(0,), epoch=0, step=0, lane=1))
    assert feeding.formed_anew({}, {"a": (0,)}, 1) == ({"a": (0,)} if anew else {})
    assert feeding.formed_anew({}, {"a": (0,)}, 0) == {}
