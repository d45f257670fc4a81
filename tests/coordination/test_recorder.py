"""The journal and the state are one: read again, what was written gives the same state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.coordination.job_record import UNRATED, JobRecord
from fleet.coordination.live_state import LiveState, Recorder, recall
from fleet.journal import events
from fleet.journal.journal import Journal, read_journal
from fleet.scheduling.model.batch_scaling import BatchRange
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from tests.journals import as_event

OLD_RUN = Path(__file__).parents[1] / "live/old_runs/first/stopped/journal.jsonl"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def books() -> LiveState:
    """Two jobs of three epochs of 100 samples, not rated yet; the batch of `b` can be chosen."""
    jobs = [JobState(name, UNRATED, 2, batch=10, remaining=300, epoch=100) for name in "ab"]
    ranges = (None, BatchRange(4, 20, 2))
    return LiveState(Cluster((2,)), [JobRecord.of(job, "data/0", r) for job, r in zip(jobs, ranges)], seed=0)


def content(ledger: LiveState) -> dict[str, Any]:
    """All that the books hold."""
    return {name: value for name, value in vars(ledger).items() if name not in ("_stop_time", "_seen", "promises")} | {
        "stopping": ledger.seconds_to_stop()
    }


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Recorder]:
    clock = Clock()
    journal = Journal(tmp_path / "journal.jsonl", clock)
    yield Recorder(books(), journal)
    journal.close()


def read_again(path: Path) -> LiveState:
    ledger = books()
    for line in read_journal(path):
        ledger.take(line)
    return ledger


def begin(keeper: Recorder) -> None:
    """Rate both jobs and start them."""
    for job in "ab":
        keeper.record(events.Rates(job=job, source="profile", measured={1: 10.0, 2: 16.0}, fitted=(10.0, 16.0)))
    keeper.record(events.Batch(job="b", batch=8))
    keeper.record(events.Planned(round=0, allocation={"a": (0,), "b": (1,)}, paces={}, seconds=0.1))
    for place, job in enumerate("ab"):
        keeper.record(
            events.Started(round=0, job=job, devices=(place,), epoch=0, step=0, lane=0, stream="", moved=False)
        )


def epoch(keeper: Recorder, job: str, number: int) -> None:
    keeper.record(
        events.Epoch(
            round=0,
            job=job,
            epoch=number,
            step=10 * number,
            devices=(0,),
            seconds=9.0,
            rate=12.5,
            metrics={"loss": 0.1 + 1 / number},
            learning_rate=0.1,
            deaf=0.25,
        )
    )


def stop(keeper: Recorder, job: str, why: str = "policy", epoch: int = 1, step: int = 3) -> None:
    devices = keeper.state.running[job]
    keeper.record(events.Stopped(round=0, job=job, devices=devices, epoch=epoch, step=step, why=why))


STEPS: dict[str, Callable[[Recorder], None]] = {
    "formed": lambda keeper: keeper.record(events.Formed(job="a", seconds=0.7)),
    "saved": lambda keeper: keeper.record(events.Checkpoint(job="b", epoch=1, step=0, path="b.h5", seconds=0.3)),
    "epoch": lambda keeper: epoch(keeper, "a", keeper.state.jobs["a"].epoch + 1),
    "moved": lambda keeper: _move(keeper),
    "pardoned": lambda keeper: keeper.record(events.ServiceReset(job="b")),
    "promised": lambda keeper: keeper.record(events.Admitted(job="b", deadline=None)),
    "late": lambda keeper: keeper.record(events.Late(job="b", deadline=30.0, end=None)),
    "lost": lambda keeper: _lose(keeper),
    "samples": lambda keeper: keeper.record(events.Samples(read={"b": 7, "a": 2}, laid={"a": 3}, made={"a": 1})),
    "round": lambda keeper: keeper.record(events.RoundEnded(round=0, start=0.0, end=1.0)),
}


def _move(keeper: Recorder) -> None:
    """`a` leaves and starts again."""
    stop(keeper, "a")
    keeper.record(events.Started(round=0, job="a", devices=(0,), epoch=1, step=3, lane=0, stream="", moved=True))


def _lose(keeper: Recorder) -> None:
    """`a` loses its rank, and is set back to its beginning."""
    keeper.record(events.RanksLost(ranks=(1,), devices=(0,), hosts=("n0",)))
    stop(keeper, "a", "lost", 0, 0)
    keeper.record(events.SetBack(job="a", epoch=0, step=0))
    keeper.record(events.Started(round=0, job="a", devices=(0,), epoch=0, step=0, lane=0, stream="", moved=True))


@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=12), st.data())
@settings(deadline=None)
def test_the_journal_read_again_gives_the_books_that_it_was_written_of(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], data: st.DataObject
) -> None:
    path, clock = tmp_path_factory.mktemp("run") / "journal.jsonl", Clock()
    journal = Journal(path, clock)
    keeper = Recorder(books(), journal)
    begin(keeper)
    for step in steps:
        clock.now += data.draw(st.floats(0.001, 20.0))
        STEPS[step](keeper)
    journal.close()
    assert content(read_again(path)) == content(keeper.state)


def test_an_end_of_each_kind_is_read_again(keeper: Recorder, tmp_path: Path) -> None:
    begin(keeper)
    epoch(keeper, "a", 3)
    keeper.record(
        events.Done(round=0, job="a", devices=(0,), epoch=3, why="epochs", metrics={"loss": 0.2}, checkpoint="a")
    )
    keeper.record(events.Failed(round=0, job="b", devices=(1,), epoch=0, error="no", traceback="where"))
    again = read_again(tmp_path / "journal.jsonl")
    assert content(again) == content(keeper.state)
    assert again.status == "failed" and not again.running
    assert again.jobs["a"].metrics == {"loss": 0.2} and again.jobs["b"].error == "where"


def test_the_next_session_tries_failed_jobs_again_on_all_devices(keeper: Recorder, tmp_path: Path) -> None:
    begin(keeper)
    keeper.journal._clock.now = 10.0  # type: ignore[attr-defined]
    keeper.record(events.RanksLost(ranks=(1,), devices=(0,), hosts=("n0",)))
    epoch(keeper, "a", 1)
    keeper.record(events.Failed(round=0, job="b", devices=(1,), epoch=0, error="no", traceback=""))
    fresh = books()
    recall(fresh, read_journal(tmp_path / "journal.jsonl"))
    assert not fresh.running and not fresh.lost_devices
    assert [job.status for job in fresh.unfinished] == ["pending", "pending"]
    assert fresh.jobs["b"].error is None and fresh.jobs["b"].batch == 8 and fresh.jobs["b"].batches is None
    assert fresh.jobs["a"].epoch == 1 and fresh.jobs["a"].state.losses == (1.1,)
    assert fresh.jobs["a"].state.attained == 10.0, "what it had until it was heard of last"
    assert fresh.jobs["a"].curve is None, "rates are those of a session"


def test_what_the_training_taught_about_rates_counts_once(keeper: Recorder) -> None:
    begin(keeper)
    epoch(keeper, "a", 1)
    taught = keeper.state.jobs["a"].curve
    assert taught is not None
    keeper.record(events.Rates(job="a", source="training", measured=dict(taught.measured), fitted=()))
    assert keeper.state.jobs["a"].curve is taught


def test_a_job_that_the_spec_no_longer_has_is_passed_over() -> None:
    ledger = books()
    ledger.take(as_event({"event": "started", "t": 0.0, "job": "gone", "devices": [0], "epoch": 0, "step": 0}))
    ledger.take(as_event({"event": "something of a later version", "t": 0.0}))
    assert not ledger.running


def test_a_journal_of_before_is_read_again() -> None:
    """Its run was stopped in the middle of an epoch."""
    names = {"short": 2, "long": 60, "late": 2}
    jobs = [JobState(name, UNRATED, 2, batch=8, remaining=64 * epochs, epoch=64) for name, epochs in names.items()]
    ledger = LiveState(Cluster((2,)), [JobRecord.of(job, "pictures/3") for job in jobs], seed=0)
    recall(ledger, read_journal(OLD_RUN))
    assert ledger.jobs["short"].status == "done" and ledger.jobs["short"].epoch == 2
    assert ledger.jobs["long"].status == "pending" and ledger.jobs["long"].epoch == 36
    assert ledger.sessions == 1 and ledger.overhead["checkpoint"] == pytest.approx(1.35788523)
    assert len(ledger.jobs["long"].state.losses) == 36


def test_samples_of_all_sessions_are_added(keeper: Recorder, tmp_path: Path) -> None:
    keeper.record(events.Samples(read={"digits": 20}, laid={"digits": 12}, made={"digits": 4}))
    fresh = books()
    recall(fresh, read_journal(tmp_path / "journal.jsonl"))
    fresh.take(as_event({"event": "samples", "t": 1.0, "read": {"birds": 4}, "laid": {"digits": 1}, "made": {}}))
    assert fresh.samples.to_json() == {
        "read": 24, "laid": 13, "made": 4,
        "of_data": {
            "birds": {"read": 4, "laid": 0, "made": 0}, "digits": {"read": 20, "laid": 13, "made": 4},
        },
    }  # fmt: skip


def test_a_job_that_costs_ranks_is_tried_again_only_after_the_runs_end(keeper: Recorder, tmp_path: Path) -> None:
    begin(keeper)
    keeper.record(
        events.Failed(round=0, job="b", devices=(1,), epoch=0, error="it crashed", traceback="", cost_ranks=True)
    )
    keeper.record(events.RankCost(job="a", rank=1))
    path, fresh = tmp_path / "journal.jsonl", books()
    recall(fresh, read_journal(path))
    assert (fresh.jobs["b"].status, fresh.jobs["b"].error, fresh.jobs["a"].ranks_cost) == ("failed", "it crashed", 1)
    keeper.record(events.Ended(status="stopped", overhead_seconds={}, wall_seconds=1.0))
    fresh = books()
    recall(fresh, read_journal(path))
    assert (fresh.jobs["b"].status, fresh.jobs["b"].error, fresh.jobs["a"].ranks_cost) == ("pending", None, 0)


def test_a_round_may_name_those_who_start_alone(keeper: Recorder, tmp_path: Path) -> None:
    begin(keeper)
    keeper.record(events.Stopped(job="a", devices=(0,), epoch=0, step=0, why="policy"))
    keeper.record(events.Planned(round=1, allocation={"a": (0,)}, others_go_on=True))
    assert (
        keeper.state.for_policy(9.0).formed
        == {"b": (1,), "a": (0,)}
        == read_again(tmp_path / "journal.jsonl").for_policy(9.0).formed
    )
    whole, part = (each.to_json(9.0) for each in keeper.state.rounds)
    assert whole["allocation"].keys() == {"a", "b"} and "others_go_on" not in whole
    assert part["allocation"] == {"a": [0]} and part["others_go_on"] is True
