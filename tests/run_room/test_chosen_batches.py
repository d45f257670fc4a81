"""Batches that a policy chooses: within which range, and who learns of the choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fleet.coordination.protocol import SetBatch
from fleet.run.chosen_batches import Batches
from fleet.run.ranks.rank import Rank
from fleet.run.ranks.runtime import Runtime

RANGED = {"name": "a", "batch_range": [4, 400]}


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
    batches(me, told).set("a", 32)
    assert told == [SetBatch("a", 16)], "over its two virtual workers"
    job = me.runtime.job("a")
    assert (job.batch_size, job.batch_range) == (16, None)


def test_another_batch_has_another_fingerprint(rank: Callable[..., Rank], runtime: Callable[..., Runtime]) -> None:
    me = rank(runtime(RANGED))
    made = batches(me, [])
    assert made.fingerprint("a", 4, "cpu") == me.runtime.fingerprint("a", "cpu")
    assert made.fingerprint("a", 8, "cpu") != made.fingerprint("a", 4, "cpu")
