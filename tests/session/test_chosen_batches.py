"""Batches that a policy chooses: within which range, and who learns of the choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fleet.coordination.job_record import UNRATED, JobRecord
from fleet.coordination.protocol import SetBatch
from fleet.scheduling.model.batch_scaling import BatchRange
from fleet.scheduling.model.jobs import JobState
from fleet.session.books import Batches
from fleet.spec import Job
from fleet.workers.rank import Rank
from fleet.workers.runtime import Runtime
from trainers.task.batch_plan import BatchChange, BatchSchedule

RANGED = {"name": "a", "batch_range": [4, 400]}


def record_of(job: Job, schedule: BatchSchedule | None = None) -> JobRecord:
    state = JobState(job.name, UNRATED, 2, batch=job.global_batch, epoch=50)
    return JobRecord.of(state, "data/0", BatchRange(4, 400, 2), schedule)


def batches(me: Rank, told: list[Any], open_: bool = True) -> Batches:
    return Batches(me, told.append, open_)


def test_no_step_has_more_samples_than_there_are(rank: Callable[..., Rank], runtime: Callable[..., Runtime]) -> None:
    me = rank(runtime(RANGED))
    found = batches(me, []).range_of(me.runtime.job("a"), samples=50)
    assert found is not None and found.ends == (4, 50)


def test_a_policy_that_chooses_none_is_shown_none(rank: Callable[..., Rank], runtime: Callable[..., Runtime]) -> None:
    me = rank(runtime(RANGED, {"name": "b"}))
    closed = batches(me, [], open_=False)
    assert closed.range_of(me.runtime.job("a"), 50) is None
    assert [job.name for job in closed.idle(me.runtime.spec.jobs)] == ["a"]
    assert batches(me, []).idle(me.runtime.spec.jobs) == []


def test_a_choice_is_told_and_kept(rank: Callable[..., Rank], runtime: Callable[..., Runtime]) -> None:
    me, told = rank(runtime(RANGED)), list[Any]()
    kept, record = batches(me, told), record_of(me.runtime.job("a"))
    kept.tell_of(record)
    assert told == [], "everybody knows the job's own"
    kept.tell_of(record.with_batch(32))
    kept.tell_of(record.with_batch(32))
    assert told == [SetBatch("a", 16)], "over its two virtual workers"
    job = me.runtime.job("a")
    assert (job.batch_size, job.batch_range) == (16, None)


def changing(change: str) -> dict[str, Any]:
    return {"name": "a", "batch": {"range": [4, 400], "change": change, "learning_rate": "linear"}}


def test_changes_at_epoch_ends_are_told_and_undone_as_the_books_have_them(
    rank: Callable[..., Rank], runtime: Callable[..., Runtime]
) -> None:
    me, told = rank(runtime(changing("epochs"))), list[Any]()
    kept, record = batches(me, told), record_of(me.runtime.job("a"), me.runtime.batches_of("a"))
    assert record.schedule is not None
    unchanged = record.schedule
    for change in (BatchChange(1, 8), BatchChange(4, 32, 2)):
        record = record.following((record.schedule or unchanged).changed(change))
    kept.tell_of(record)
    assert told == [SetBatch("a", 8, 1), SetBatch("a", 32, 4, 2)]
    assert me.runtime.job("a").batch_size == 32 and me.runtime.batches_of("a") == record.schedule
    kept.tell_of(record.at(2, 0, 0.0))
    assert told[2:] == [SetBatch("a", 8, 1)] and me.runtime.job("a").batch_size == 8
    kept.tell_of(record.at(0, 3, 0.0))
    assert told[3:] == [SetBatch("a", 4, 0)] and me.runtime.batches_of("a") == unchanged


def test_a_choice_at_the_start_takes_the_learning_rate_with_it(
    rank: Callable[..., Rank], runtime: Callable[..., Runtime]
) -> None:
    me, told = rank(runtime(changing("start"))), list[Any]()
    batches(me, told).tell_of(record_of(me.runtime.job("a")).with_batch(32))
    assert told == [SetBatch("a", 16, 0)]
    found = me.runtime.batches_of("a")
    assert found is not None and (found.own, found.factor(0, 0, 2)) == (4, 4.0)
    assert me.runtime.task("a").batch_size == 4, "the rate and its schedule are made for that"


def test_a_measurement_is_of_the_jobs_own_batch(runtime: Callable[..., Runtime]) -> None:
    first = runtime(changing("epochs"))
    later = first.with_change("a", BatchChange(3, 32))
    assert later.job("a").batch_size == 32
    assert later.for_measuring("a").task("a").batch_size == 4
    assert later.fingerprint("a", "cpu") == first.fingerprint("a", "cpu")
    chosen = runtime(changing("start")).with_change("a", BatchChange(0, 32))
    assert chosen.for_measuring("a").task("a").batch_size == 32, "that stays"
    assert later.for_measuring("a", 5).task("a").batch_size == 5


def test_another_batch_has_another_fingerprint(rank: Callable[..., Rank], runtime: Callable[..., Runtime]) -> None:
    me = rank(runtime(RANGED))
    made = batches(me, [])
    assert made.fingerprint("a", 4, "cpu") == me.runtime.fingerprint("a", "cpu")
    assert made.fingerprint("a", 8, "cpu") != made.fingerprint("a", 4, "cpu")
